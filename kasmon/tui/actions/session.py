"""Actions on the selected session: open, send a prompt, stop, show its changes, explain its state."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kasmon.errors import InteractiveOnlyError, KasmonError
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_operation, find_location, show_text, write_prompt
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.error_text import what_failed
from kasmon.tui.session_meter import can

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations
    from kasmon.tui.review.controller import ReviewController
    from kasmon.tui.session_pane import SessionPane

EXPLAINED: Final = 12
"""The label of an explanation's line takes this many cells before its text."""


class SessionDashboard(Dashboard, Protocol):
    """What these actions need."""

    @property
    def session_pane(self) -> "SessionPane": ...
    @property
    def review(self) -> "ReviewController": ...


class SessionActions:
    def __init__(self, app: SessionDashboard, new: Callable[[], None]) -> None:
        """*new* opens the dialog for a new session."""
        self.app, self._new = app, new

    # The session.

    def open(self) -> None:
        if (session := self.app.main_view.table.selected_session) is not None:
            self.app.session_pane.enter(session.id)
        elif self.app.fleet.sessions:
            self.app.main_view.table.toggle_fold()
        else:
            self._new()

    def attach(self) -> None:
        session = self.app.main_view.table.selected_session
        if session is None:
            return
        if session.mode is not Mode.TMUX:
            error = InteractiveOnlyError(clean_line(session.name))
            self.app.say(what_failed(error), severity="warning")
        else:
            self.app.session_pane.attach(session.id)

    def write_message(self) -> None:
        if (session := self._with_live_agent()) is not None:
            write_prompt(self.app, [session])

    def interrupt(self) -> None:
        session = self._with_live_agent()
        if session is not None and not can(session, "interrupts"):
            self.app.say(f"{clean_line(session.name)} cannot be interrupted.", severity="warning")
        elif session is not None:
            self.app.run_operation(lambda operations: operations.interrupt(session.id))

    def stop(self) -> None:
        session = self._with_live_agent()
        if session is None:
            return
        if session.adopted:
            name, key = clean_line(session.name), self.app.keys.shown("forget")
            self.app.say(
                f"{name} runs in your own tmux. Stop it there, or press {key} to remove it from the list.",
                severity="warning",
            )
            return
        busy = "It is in the middle of a turn." if session.state.value in ("working", "asking") else ""
        graceful = f"Stop {session.name}? It is asked to exit, and killed if it does not."
        lines = [graceful, busy, "The log and the working directory are kept."]
        lines = [line for line in lines if line]
        confirm_operation(self.app, "Stop", tuple(lines), "stop", lambda operations: operations.stop(session.id))

    def restart(self) -> None:
        session = self.app.main_view.table.selected_session
        if session is None:
            return
        if session.state in ALIVE and session.generation and not session.is_orphaned:
            self.app.say(f"{clean_line(session.name)} is running. Stop it first.", severity="warning")
        else:
            self.app.run_operation(lambda operations: operations.restart(session.id))

    def move(self) -> None:
        session = self.app.main_view.table.selected_session
        if session is None:
            return
        if session.mode is Mode.INTERPRETER:
            self.app.say(
                f"{clean_line(session.name)} is an interpreter session and cannot be moved.", severity="warning"
            )
            return
        to = Mode.SDK if session.mode is Mode.TMUX else Mode.TMUX
        where = "to structured mode" if to is Mode.SDK else "to a terminal"
        from kasmon.supervisor.sessions.permission_mode import problem_of  # seldom wanted

        lines: tuple[str, ...] = (
            f"Move {session.name} {where}? The conversation is kept.",
            "The move is refused while a turn is running.",
        )
        problem = problem_of(session.program, session.permission_mode, to)
        if problem:
            lines += (f"Its requests may change: {clean_line(problem)}.",)

        async def move(operations: "Operations") -> None:
            await operations.move(session.id, to, changes_permissions=bool(problem))

        confirm_operation(self.app, "Move", lines, "move", move)

    def rename(self) -> None:
        if (session := self.app.main_view.table.selected_session) is not None:
            from kasmon.tui.dialogs.common import RenameDialog

            self.app.push_screen(RenameDialog(self.app.look, self.app.keys, session))

    def forget(self) -> None:
        session = self.app.main_view.table.selected_session
        if session is None:
            return
        if session.adopted and session.state in ALIVE:
            lines = (f"Remove {session.name} from the list?", "It keeps running in your own tmux.")
            confirm_operation(self.app, "Remove", lines, "remove", lambda operations: operations.remove(session.id))
            return
        if session.state in ALIVE and session.generation:
            self.app.say(f"{clean_line(session.name)} is running. Stop it first.", severity="warning")
            return
        kept = "The event log and the working directory are kept."
        if session.mode is Mode.TMUX:
            kept = "The event log and the working directory are kept; the terminal scrollback is deleted."
        lines = (f"Remove {session.name} from the list?", kept)
        if session.mode is Mode.INTERPRETER:
            lines = (
                f"Remove {session.name} from the list, with its checkpoints?",
                "Its files are deleted too, except in a folder of yours.",
            )
        confirm_operation(self.app, "Remove", lines, "remove", lambda operations: operations.remove(session.id))

    def send_feedback(self) -> None:
        """Send the selected session's agent what its pull request needs."""
        if (session := self._with_live_agent()) is not None:
            self.app.run_operation(lambda operations: operations.send_feedback(session.id))

    def mark_viewed(self) -> None:
        if (session := self.app.main_view.table.selected_session) is None:
            return
        if session.is_unviewed:
            self.app.session_pane.mark_viewed(session)
        else:
            self.app.say(f"{clean_line(session.name)} has no finished turn to mark as viewed.")

    def diff(self) -> None:
        """Review what the selected session changed."""
        if (session := self.app.main_view.table.selected_session) is not None:
            self.app.review.open(session)

    def export(self) -> None:
        """Export all of the selected session to a file."""
        if (session := self.app.main_view.table.selected_session) is not None:
            self.app.run_operation(lambda operations: operations.export(session.id))

    def explain(self) -> None:
        """Show why the selected session is in its state."""
        if (session := self.app.main_view.table.selected_session) is not None:
            self.app.run_worker(self._explain(session), group="dialog", exclusive=True)

    async def _explain(self, session: Session) -> None:
        name, gateway, here = clean_line(session.name), self.app.gateway, find_location(self.app)
        try:
            explanation = await gateway.explained(session.id) if gateway is not None else ()
        except KasmonError as error:
            self.app.say(what_failed(error), severity="warning")
            return
        if explanation and here == find_location(self.app):
            show_text(self.app, f"Why {name} is {session.state}", lambda width: _explanation_rows(explanation, width))

    # Shared.

    def _with_live_agent(self) -> Session | None:
        """The selected session if its agent is running; notify the user if not."""
        session = self.app.main_view.table.selected_session
        if session is not None and session.state not in ALIVE:
            key = self.app.keys.shown("restart")
            self.app.say(f"{clean_line(session.name)} is not running; {key} restarts it.", severity="warning")
            return None
        return session


def _explanation_rows(explanation: Sequence[str], width: int) -> list[TextLine]:
    """An explanation's lines as rows: a wrapped line continues under its text, not under its label."""
    rows = wrap([(explanation[0], Token.STRONG)], width)
    rest = ((" " * EXPLAINED, Token.TEXT),)
    for line in explanation[1:]:
        first = ((f"{line[:EXPLAINED]:<{EXPLAINED}}", Token.SUBJECT),)
        rows += wrap([(line[EXPLAINED:], Token.OUTPUT)], width, first, rest)
    return rows
