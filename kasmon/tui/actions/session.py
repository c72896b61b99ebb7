"""Actions on a session, which `on_selected` selects: open, send a prompt, stop, show its changes, explain its state."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kasmon.errors import InteractiveOnlyError, KasmonError
from kasmon.model.commands import Mode
from kasmon.model.fleet import find_children
from kasmon.model.formatting import mb
from kasmon.model.hibernation import find_obstacle, propose
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import (
    confirm,
    confirm_action,
    confirm_operation,
    find_location,
    show_text,
    write_prompt,
)
from kasmon.tui.error_text import what_failed
from kasmon.tui.gateway.protocol import MemoryUse
from kasmon.tui.session_meter import can
from kasmon.tui.session_pane import PaneDashboard

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations
    from kasmon.tui.review.controller import ReviewController

EXPLAINED: Final = 12
"""The label of an explanation's line takes this many cells before its text."""


class SessionDashboard(PaneDashboard, Protocol):
    @property
    def review(self) -> "ReviewController": ...
    @property
    def memory(self) -> MemoryUse: ...


class SessionActions:
    def __init__(self, app: SessionDashboard, new: Callable[[], None]) -> None:
        """*new* opens the dialog for a new session."""
        self.app, self._new = app, new
        self._is_over_budget = False
        """Whether the user was already notified that agents use more memory than their budget."""

    # The session.

    def open(self) -> None:
        if (session := self.app.main_view.table.selected_session) is not None:
            self.app.session_pane.enter(session.id)
        elif self.app.fleet.sessions:
            self.app.main_view.table.toggle_fold()
        else:
            self._new()

    def attach(self, session: Session) -> None:
        if not session.has_screen:
            error = InteractiveOnlyError(clean_line(session.label))
            self.app.say(what_failed(error), severity="warning")
        else:
            self.app.session_pane.attach(session.id)

    def write_message(self, session: Session) -> None:
        write_prompt(self.app, [session])

    def interrupt(self, session: Session) -> None:
        if can(session, "interrupts"):
            self.app.run_operation(lambda operations: operations.interrupt(session.id))
        else:
            self.app.say(f"{clean_line(session.label)} cannot be interrupted.", severity="warning")

    def stop(self, session: Session) -> None:
        if session.adopted:
            name, key = clean_line(session.label), self.app.keys.shown("forget")
            self.app.say(
                f"{name} runs in your own tmux. Stop it there, or press {key} to remove it from the list.",
                severity="warning",
            )
            return
        busy = "It is in the middle of a turn." if session.state.value in ("working", "asking") else ""
        graceful = f"Stop {session.label}? It is asked to exit, and killed if it does not."
        lines = [graceful, busy, "The log and the working directory are kept."]
        lines = [line for line in lines if line]
        if children := [each for each in find_children(self.app.fleet, session.id) if each.state in ALIVE]:
            self._stop_with_children(session, lines, children)
            return
        confirm_operation(self.app, "Stop", lines, "stop", lambda operations: operations.stop(session.id))

    def _stop_with_children(self, session: Session, lines: list[str], children: list[Session]) -> None:
        """Ask whether *children*, which the agent of *session* started, are stopped too."""
        from kasmon.tui.dialogs.common import Confirmation

        names = ", ".join(each.label for each in children)
        question = Confirmation("Stop", (*lines, f"Its agent started {names}."), "stop it alone", "stop them too")
        confirm(
            self.app,
            question,
            lambda dialog: dialog.run_operation(lambda operations: operations.stop(session.id)),
            lambda dialog: dialog.run_operation(lambda operations: operations.stop(session.id, with_children=True)),
        )

    def hibernate(self, session: Session) -> None:
        self.app.run_operation(lambda operations: operations.hibernate(session.id))

    def hibernate_idle(self) -> None:
        """Ask, then hibernate what is proposed; within the budget, all idle sessions."""
        proposed = self._list_proposed() or propose(self.app.fleet.sessions)
        if not proposed:
            self.app.say("No idle session can be hibernated.")
            return
        count = "1 session" if len(proposed) == 1 else f"{len(proposed)} sessions"
        names = ", ".join(each.label for each in proposed)
        lines = (f"Hibernate {count}? Use resumes the conversation.", f"Idle for the longest time first: {names}.")
        ids = [each.id for each in proposed]
        confirm_operation(self.app, "Hibernate", lines, "hibernate", lambda operations: operations.hibernate_all(ids))

    def note_memory(self) -> None:
        """Notify the user once when agents begin to use more memory than their budget."""
        memory = self.app.memory
        was_over, self._is_over_budget = self._is_over_budget, 0 < memory.budget_bytes < memory.total_bytes
        if self._is_over_budget and not was_over:
            names = ", ".join(clean_line(each.label) for each in self._list_proposed())
            key = self.app.keys.shown("hibernate_idle")
            advice = f"{key} hibernates those idle for the longest time: {names}." if names else "None of them is idle."
            use = f"Agents use {mb(memory.total_bytes)} of {mb(memory.budget_bytes)} memory."
            self.app.say(f"{use} {advice}", severity="warning")

    def _list_proposed(self) -> list[Session]:
        found = map(self.app.fleet.get, self.app.memory.proposed)
        return [each for each in found if each is not None and not find_obstacle(each)]

    def restart(self, session: Session) -> None:
        if session.state in ALIVE and session.generation and not session.is_orphaned:
            self.app.say(f"{clean_line(session.label)} is running. Stop it first.", severity="warning")
        else:
            self.app.run_operation(lambda operations: operations.restart(session.id))

    def move(self, session: Session) -> None:
        if session.mode is Mode.INTERPRETER:
            self.app.say(
                f"{clean_line(session.label)} is an interpreter session and cannot be moved.", severity="warning"
            )
            return
        to = Mode.SDK if session.mode is Mode.TMUX else Mode.TMUX
        where = "to structured mode" if to is Mode.SDK else "to a terminal"
        from kasmon.supervisor.sessions.permission_mode import problem_of  # seldom wanted

        lines: tuple[str, ...] = (
            f"Move {session.label} {where}? The conversation is kept.",
            "The move is refused while a turn is running.",
        )
        problem = problem_of(session.program, session.permission_mode, to)
        if problem:
            lines += (f"Its requests may change: {clean_line(problem)}.",)

        async def move(operations: "Operations") -> None:
            await operations.move(session.id, to, changes_permissions=bool(problem))

        async def ask() -> None:
            if accounts := await self._find_other_accounts(session):
                from kasmon.tui.dialogs.common import MoveDialog

                self.app.push_screen(
                    MoveDialog(self.app.look, self.app.keys, session, where.removeprefix("to "), lines, move, accounts)
                )
            else:
                confirm_operation(self.app, "Move", lines, "move", move)

        self.app.run_worker(ask(), group="move", exclusive=True)

    async def _find_other_accounts(self, session: Session) -> Sequence[str]:
        """Return the accounts that *session* can be moved to; empty stands for its agent's own log-in."""
        gateway = self.app.gateway
        if session.via or gateway is None:
            return ()
        try:
            offers = await gateway.offers(session.config_folder)
        except KasmonError:
            return ()  # its mode can be changed all the same
        offer = next((each for each in offers if each.name == session.agent), None)
        own = ("", *offer.accounts) if offer is not None and offer.accounts else ()
        return tuple(name for name in own if name != session.account)

    def log_in(self, session: Session) -> None:
        """Ask, then run the log-in that the session's agent offers; the agent restarts after it."""
        if (log_in := session.log_in) is None:
            self.app.say(f"{clean_line(session.label)} requires no log-in that runs in a terminal.", severity="warning")
            return
        import shlex  # rarely needed

        async def run(operations: "Operations") -> None:
            self.app.main_view.table.await_name(await operations.begin_log_in(session.id, log_in))

        variables = [f"{name}={value}" for name, value in log_in.variables.items()]
        lines = (
            f"{log_in.title or 'Log in'}: run this in a terminal?",
            shlex.join([*variables, *log_in.argv]),
            f"{session.label} restarts once it has ended well.",
        )
        confirm_action(self.app, "Log in", lines, "run", lambda: self.app.run_operation(run))

    def rename(self, session: Session) -> None:
        from kasmon.tui.dialogs.common import RenameDialog

        self.app.push_screen(RenameDialog(self.app.look, self.app.keys, session))

    def tag(self, session: Session) -> None:
        from kasmon.tui.dialogs.common import TagsDialog

        used = sorted({tag for each in self.app.fleet.sessions for tag in each.tags})
        self.app.push_screen(TagsDialog(self.app.look, self.app.keys, session, used))

    def forget(self, session: Session) -> None:
        if session.adopted and session.state in ALIVE:
            lines = (f"Remove {session.label} from the list?", "It keeps running in your own tmux.")
            confirm_operation(self.app, "Remove", lines, "remove", lambda operations: operations.remove(session.id))
            return
        if session.state in ALIVE and session.generation:
            self.app.say(f"{clean_line(session.label)} is running. Stop it first.", severity="warning")
            return
        kept = "The event log and the working directory are kept."
        if session.mode is Mode.TMUX:
            kept = "The event log and the working directory are kept; the terminal scrollback is deleted."
        lines = (f"Remove {session.label} from the list?", kept)
        if session.mode is Mode.INTERPRETER:
            lines = (
                f"Remove {session.label} from the list, with its checkpoints?",
                "Its files are deleted too, except in a folder of yours.",
            )
        if not session.deletes_conversation:
            confirm_operation(self.app, "Remove", lines, "remove", lambda operations: operations.remove(session.id))
            return
        from kasmon.tui.dialogs.common import Confirmation  # rarely needed

        kept = "Its agent keeps its own conversation, unless you have it deleted: that is final."
        confirm(
            self.app,
            Confirmation("Remove", (*lines, kept), "remove", "remove, and delete its conversation"),
            lambda dialog: dialog.run_operation(lambda operations: operations.remove(session.id)),
            lambda dialog: dialog.run_operation(
                lambda operations: operations.remove(session.id, deletes_conversation=True)
            ),
        )

    def send_feedback(self, session: Session) -> None:
        self.app.run_operation(lambda operations: operations.send_feedback(session.id))

    def mark_viewed(self, session: Session) -> None:
        if session.is_unviewed:
            self.app.session_pane.mark_viewed(session)
        else:
            self.app.say(f"{clean_line(session.label)} has no finished turn to mark as viewed.")

    def diff(self, session: Session) -> None:
        self.app.review.open(session)

    def export(self, session: Session) -> None:
        self.app.run_operation(lambda operations: operations.export(session.id))

    def explain(self, session: Session) -> None:
        self.app.run_worker(self._explain(session), group="dialog", exclusive=True)

    async def _explain(self, session: Session) -> None:
        name, gateway, location = clean_line(session.label), self.app.gateway, find_location(self.app)
        try:
            explanation = await gateway.explain_state(session.id) if gateway is not None else ()
        except KasmonError as error:
            self.app.say(what_failed(error), severity="warning")
            return
        if explanation and location == find_location(self.app):
            show_text(self.app, f"Why {name} is {session.state}", lambda width: _explanation_rows(explanation, width))

    # Shared.

    def on_selected(self, act: Callable[[Session], object]) -> Callable[[], None]:
        """Return a handler that runs *act* on the selected session, if there is one."""

        def run() -> None:
            if (session := self.app.main_view.table.selected_session) is not None:
                act(session)

        return run

    def on_agent(self, act: Callable[[Session], object], *, or_hibernated: bool = False) -> Callable[[], None]:
        """As `on_selected`, if its agent is running, or with *or_hibernated* resumes; notify the user if not."""

        def run(session: Session) -> None:
            if session.state in ALIVE or (or_hibernated and session.state is SessionState.HIBERNATED):
                act(session)
            else:
                key = self.app.keys.shown("restart")
                self.app.say(f"{clean_line(session.label)} is not running; {key} restarts it.", severity="warning")

        return self.on_selected(run)


def _explanation_rows(explanation: Sequence[str], width: int) -> list[TextLine]:
    """An explanation's lines as rows: a wrapped line continues under its text, not under its label."""
    rows = wrap([(explanation[0], Token.STRONG)], width)
    rest = ((" " * EXPLAINED, Token.TEXT),)
    for line in explanation[1:]:
        first = ((f"{line[:EXPLAINED]:<{EXPLAINED}}", Token.SUBJECT),)
        rows += wrap([(line[EXPLAINED:], Token.OUTPUT)], width, first, rest)
    return rows
