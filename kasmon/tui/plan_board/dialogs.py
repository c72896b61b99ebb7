"""The dialogs of the wave board: an edited plan, another agent for a task, and the details of a task."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.formatting import clock, state_label
from kasmon.model.plan.placement import describe_requirement, machine_requirement
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import TaskRun
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, wrap
from kasmon.sanitize import clean_block, clean_line
from kasmon.scripted_agent.script import SCRIPTED, displayed_prompt
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.supervisor.plans.edit import PlanEdit
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.agent_choice import AgentChoice
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.common import TOO_EARLY
from kasmon.tui.dialogs.fields import ChoiceChanged, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.queue import SILENCE_S
from kasmon.tui.plan_board.card_text import agent_of, children_of, find_card_state
from kasmon.tui.theme.look import ThemeStyles, money

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
        self.submit_if_confirmed()

    def on_choice_changed(self, message: ChoiceChanged) -> None:
        message.stop()
        self._handle_edit()

    def submit(self) -> None:
        if not self.agent.is_loaded:
            self.wait_for("the installed agents are known")
        elif self.agent.can_start:
            plan, task, agent = self.plan, self.task_id, self.agent.value
            self.run_operation(lambda operations: operations.decide_on_plan(plan, "replace", task, agent))


LABEL = 12


def task_rows(board: PlanBoard, task: Task, width: int) -> Sequence[TextLine]:
    """Return everything that the plan and its run record of *task*."""
    at = board.run.of(task.id)
    rows = wrap([(clean_line(task.title) or task.id, Token.HEADING)], width)
    for label, value in _facts(board, task, at):
        rows += _entry(label, value, width)
    for each in (board.sessions.get(at.session), *children_of(board, at)):
        if each is not None and each.finish_proposed:
            who = each.finish_proposed_by or "an agent"
            proposal = (
                f"{who} proposes to finish {each.label}, {clock(each.finish_proposed_at)}: {each.finish_proposed}"
            )
            rows += _entry("proposal", proposal, width)
    rows += _tree(board, at, width)
    for number, why in enumerate(at.failures, 1):
        rows += _entry(f"failure {number}", why, width, Token.WARNING)
    if at.check is not None and at.check.output:
        rows += [BLANK, TextLine((("Check output (end)", Token.STRONG),))]
        rows += _block(at.check.output.rstrip("\n"), width, Token.OUTPUT)
    prompt = displayed_prompt(task.body) if agent_of(board, task) == SCRIPTED else task.body
    if prompt.strip():
        rows += [BLANK, TextLine((("Prompt", Token.STRONG),))]
        rows += _block(prompt.strip("\n"), width, Token.TEXT)
    return rows


def _facts(board: PlanBoard, task: Task, at: TaskRun) -> list[tuple[str, str]]:
    how = find_card_state(board, task)
    session = board.sessions.get(at.session)
    peers = [each.id for each in board.plan.wave(task.wave) if each.id != task.id]
    facts = [
        ("state", f"{how.label}, attempt {at.attempt}" if at.attempt > 1 else how.label),
        ("blocked by", board.ahead.blocked.get(task.id, "")),
        ("why", at.why),
        ("agent", agent_of(board, task)),
        ("account", _account(board, task, at)),
        ("machine", _machine(board, task, at)),
        ("session", at.name if session is None else session.label),
        ("wave", f"{task.wave} of {board.plan.waves}"),
        ("peers", ", ".join(peers)),
        ("needs", ", ".join(task.needs)),
        ("continues", task.inherits),
        ("runs", task.run),
        ("check", task.check),
        ("checked", _check(at)),
        ("may change", ", ".join(task.files)),
        ("changed", "" if at.changed is None else f"{at.changed} files"),
        ("branch", at.branch),
        ("base commit", at.base[:12]),
        ("conflicts", ", ".join(at.conflicts)),
        ("folder", at.workdir),
    ]
    return [(label, value) for label, value in facts if value]


def _tree(board: PlanBoard, at: TaskRun, width: int) -> list[TextLine]:
    """Return a line for each session that the task's agent started, those of a session's agent below it."""
    children = children_of(board, at)
    rows: list[TextLine] = []

    def add(starter: str, depth: int) -> None:
        for each in children:
            if each.actor is not None and each.actor.session == starter:
                spent = "" if each.cost_usd is None else f", {money(each.cost_usd)}"
                indent = f"{'  ' * (depth - 1)}└ " if depth else ""
                line = f"{indent}{each.label}: {state_label(each)}, {each.agent}{spent}"
                rows.extend(_entry("" if rows else "started", line, width))
                add(str(each.id), depth + 1)

    add(at.session, 0)
    return rows


def _account(board: PlanBoard, task: Task, at: TaskRun) -> str:
    if at.ran is not None and at.ran.account:
        return f"{at.ran.account}: {at.ran.account_why}" if at.ran.account_why else at.ran.account
    names = () if task.run else task.accounts or board.plan.accounts
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names)


def _machine(board: PlanBoard, task: Task, at: TaskRun) -> str:
    wanted = machine_requirement(board.plan, task)
    if wanted is None:
        return ""
    why = f": {at.placement.why}" if at.placement is not None and at.placement.machine else ""
    return f"{at.machine}{why}" if at.machine else describe_requirement(wanted)


def _check(at: TaskRun) -> str:
    if at.check is None:
        return ""
    if at.check.ok:
        return f"passed in {at.check.took_s:.1f} s"
    return at.check.why or f"failed (exit {at.check.exit_code}) after {at.check.took_s:.1f} s"


def _entry(label: str, value: str, width: int, token: Token = Token.TEXT) -> list[TextLine]:
    first: tuple[Span, ...] = ((f"{label:<{LABEL}} ", Token.FAINT),)
    return wrap([(clean_line(value), token)], width, first, ((" " * (LABEL + 1), Token.TEXT),))


def _block(text: str, width: int, token: Token) -> list[TextLine]:
    margin: tuple[Span, ...] = (("  ", Token.TEXT),)
    return [row for line in clean_block(text).split("\n") for row in wrap([(line, token)], width, margin, margin)]
