"""Two dialogs of the wave board: applying an edited plan, and choosing another agent for a task."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.transcript.text import BLANK, TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.supervisor.plans.edit import PlanEdit
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.agent_choice import AgentChoice
from kasmon.tui.dialogs.base import ChoiceChanged, Dialog, DialogField
from kasmon.tui.dialogs.common import TOO_EARLY
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.queue import SILENCE_S
from kasmon.tui.theme.look import ThemeStyles

SIGNS = {"+": Token.ADDED, "-": Token.REMOVED, "~": Token.HUNK}


class PlanEditDialog(Dialog):
    """How a plan's file differs from the running plan, or a plan not yet running. `y` applies it, once it was all
    visible."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "yes", "yes", show=False)]

    def __init__(self, look: ThemeStyles, keys: KeyMap, clock: Clock, plan: str, edit: PlanEdit) -> None:
        self.runs_it = "/" in plan
        super().__init__(look, keys, self._rows)
        self.title_text = "Run this plan" if self.runs_it else "The plan file changed"
        self.clock, self.plan, self.edit = clock, plan, edit
        self.verb = "run" if self.runs_it else "apply"
        self._shown_at = clock.ticking()

    def on_mount(self) -> None:
        self._shown_at = self.clock.ticking()

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        return (*(() if self.edit.refused else (("y", self.verb),)), scroll, ("esc", "cancel"))

    def action_yes(self) -> None:
        if self.edit.refused:
            return
        if self.clock.ticking() - self._shown_at < SILENCE_S:
            self.complain(*TOO_EARLY)
        elif self.is_read():
            self.run_operation(lambda operations: operations.apply_plan_edit(self.plan, self.edit.digest))

    def _rows(self, width: int) -> Sequence[TextLine]:
        rows: list[TextLine] = []
        if self.edit.refused:
            rows += wrap(
                [("The plan cannot run:" if self.runs_it else "The changes cannot be applied:", Token.ERROR)], width
            )
            for why in self.edit.refused:
                rows += wrap([(clean_line(why), Token.WARNING)], width, (("  ", Token.TEXT),), (("  ", Token.TEXT),))
            rows += [BLANK] if self.edit.lines else []
        for line in self.edit.lines:
            shown = clean_line(line)
            rows += wrap([(shown, SIGNS.get(shown[:1], Token.TEXT))], width, (), (("  ", Token.TEXT),))
        if not self.edit.refused:
            rows += [BLANK, *wrap([("What you agree to:", Token.STRONG)], width)]
            for line in self.edit.agreement:
                rows += wrap([(clean_line(line), Token.TEXT)], width, (), (("    ", Token.TEXT),))
        return rows


class OtherAgentDialog(Dialog):
    """Chooses the agent that retries a task. Confirming before the agents are loaded takes effect once they are."""

    def __init__(self, look: ThemeStyles, keys: KeyMap, plan: str, task: str) -> None:
        super().__init__(look, keys)
        self.plan, self.task_id, self.agent = plan, task, AgentChoice(look)
        self.title_text = f"Retry task {clean_line(task)} with another agent"
        self.agent.why.say(("The new agent gets the earlier failures. A running attempt is stopped.", Token.NOTICE))

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Agent", self.agent.field)
        yield self.agent.why

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "retry"), ("esc", "close"))
        self.begin(self.agent.field)
        self.run_worker(self._load_agents())

    async def _load_agents(self) -> None:
        gateway = self.dashboard.gateway
        try:
            self.agent.offer(await gateway.offers() if gateway is not None else ())
        except KasmonError as error:
            self._handle_edit()
            self.agent.fail(error)
            return
        if self.is_confirmed:
            self._handle_edit()
            self._act()

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        message.stop()
        self._handle_edit()

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            self._act()

    def _act(self) -> None:
        if not self.agent.is_loaded:
            self.wait_for("the installed agents are known")
        elif self.agent.can_start:
            plan, task, agent = self.plan, self.task_id, self.agent.value
            self.run_operation(lambda operations: operations.decide_on_plan(plan, "replace", task, agent))
