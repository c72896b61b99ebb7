"""Two dialogs of the wave board: an edited plan that may be taken over, and another agent for a task."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.clean import clean_line
from kasmon.model.text import BLANK, Line, Token, fitted
from kasmon.supervisor.plans.edit import Edit
from kasmon.tui.agent_dialog import AgentDialog
from kasmon.tui.asking import SILENCE_S
from kasmon.tui.clock import Clock
from kasmon.tui.dialog import Field
from kasmon.tui.dialogs import Reading
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.world import Steer, TakeEdit

SIGNS = {"+": Token.ADDED, "-": Token.REMOVED, "~": Token.HUNK}


class EditDialog(Reading):
    """How a plan's file differs from what runs, or one that does not run. `y` takes it over, once it was in sight."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "yes", "yes", show=False)]

    def __init__(self, look: Look, keys: Keys, clock: Clock, plan: str, edit: Edit) -> None:
        self.runs_it = "/" in plan
        super().__init__(look, keys, "Run this plan" if self.runs_it else "The plan was edited", self._rows)
        self.clock, self.plan, self.edit = clock, plan, edit
        self.verb = "run it" if self.runs_it else "take it over"
        self._asked_at = clock.ticking()

    def on_mount(self) -> None:
        self._asked_at = self.clock.ticking()

    def offered(self, scroll: tuple[str, str]) -> Iterable[tuple[str, str]]:
        return (*(() if self.edit.refused else (("y", self.verb),)), scroll, ("esc", "leave it"))

    def action_yes(self) -> None:
        if self.edit.refused or self.clock.ticking() - self._asked_at < SILENCE_S:
            return
        if self.is_read():
            self.want(TakeEdit(plan=self.plan, digest=self.edit.digest))

    def _rows(self, width: int) -> Sequence[Line]:
        rows: list[Line] = []
        if self.edit.refused:
            rows += fitted([("It cannot be run:" if self.runs_it else "It cannot be taken over:", Token.ERROR)], width)
            for why in self.edit.refused:
                rows += fitted([(clean_line(why), Token.WARNING)], width, (("  ", Token.TEXT),), (("  ", Token.TEXT),))
            rows += [BLANK] if self.edit.lines else []
        for line in self.edit.lines:
            shown = clean_line(line)
            rows += fitted([(shown, SIGNS.get(shown[:1], Token.TEXT))], width, (), (("  ", Token.TEXT),))
        if not self.edit.refused:
            rows += [BLANK, *fitted([("What you agree to:", Token.STRONG)], width)]
            for line in self.edit.agreement:
                rows += fitted([(clean_line(line), Token.TEXT)], width, (), (("    ", Token.TEXT),))
        return rows


class OtherAgent(AgentDialog):
    """Who does a task once more."""

    def __init__(self, look: Look, keys: Keys, wanted: Steer) -> None:
        super().__init__(look, keys)
        self.wanted = wanted
        self.title_text = f"Another agent for task {clean_line(wanted.task)}"
        self.why.say(("What went wrong before is told to it; what runs of the task now ends.", Token.NOTICE))

    def inside(self) -> Iterable[Widget]:
        yield Field("Agent", self.agent)
        yield self.why

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "replace"), ("esc", "close"))
        self.begin(self.agent)

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            self._act()

    def _act(self) -> None:
        if not self._await_agents() and self.agent.options:
            plan, task = self.wanted.plan, self.wanted.task
            self.want(Steer(plan=plan, deed="replace", task=task, agent=self.agent.value))
