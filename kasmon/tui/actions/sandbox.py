"""Actions on sandboxes: pause, resume, checkpoint, fork, restore, and show their history."""

from functools import partial

from kasmon.errors import KasmonError
from kasmon.model.commands import Allow, Checkpoint, Mode, Pause, Restore, Resume, SandboxCommand
from kasmon.model.sandbox.policy import REMEMBERING
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_action, confirm_operation, find_location
from kasmon.tui.actions.session import SessionDashboard
from kasmon.tui.sandbox.status import can_sleep, sleeps_on_disk


class SandboxActions:
    def __init__(self, app: SessionDashboard) -> None:
        self.app = app

    # On the selected session.

    def freeze(self) -> None:
        if (session := self._with_live_sandbox()) is not None:
            self.send(session, Pause())

    def pause_box(self) -> None:
        """Pause its sandbox to disk, if its tier can store memory there."""
        if (session := self._with_interpreters()) is not None:
            self.pause(session)

    def wake(self) -> None:
        """Resume its sandbox, or continue its agent if Ctrl-Z stopped that."""
        selected = self.app.main_view.table.selected_session
        if selected is not None and selected.is_stopped:
            self.app.run_operation(lambda operations: operations.continue_stopped(selected.id))
        elif (session := self._with_live_sandbox()) is not None:
            self.resume(session)

    def create_checkpoint(self) -> None:
        if (session := self._with_interpreters()) is not None:
            self.send(session, Checkpoint())

    def fork(self) -> None:
        if (session := self._with_interpreters()) is not None:
            self.ask_fork_name(session, "")

    def freeze_all(self) -> None:
        """Ask, then pause all running sandboxes; those in a turn pause when it ends."""
        app = self.app
        awake = [each for each in app.fleet.sessions if can_sleep(each)]
        if not awake:
            app.say("No running sandbox can be paused.")
            return
        one = len(awake) == 1
        busy = sum(each.in_turn for each in awake)
        lines = [
            f"{'Pause 1 sandbox? It resumes' if one else f'Pause {len(awake)} sandboxes? They resume'} on next use."
        ]
        lines += [f"{busy} {'is' if busy == 1 else 'are'} in a turn and will pause when it ends."] if busy else []

        def freeze_them() -> None:
            for each in awake:
                self.send(each, Pause())

        confirm_action(app, "Pause all", lines, "pause", freeze_them)

    def open_sandbox(self) -> None:
        """Show the history and checkpoints of the selected session's sandbox."""
        session = self._sandboxed()
        if session is None:
            return
        from kasmon.tui.sandbox.screen import SandboxScreen  # seldom wanted

        app = self.app
        app.push_screen(SandboxScreen(app.look, app.keys, app.clock, session, self))

    # Requests of the sandbox screen.

    def show_turn_diff(self, session: Session, turn: int) -> None:
        self.app.review.open(session, turn)

    def restore(self, session: Session, checkpoint: str) -> None:
        name = clean_line(session.label)
        lines = (
            f"Restore {name} to {checkpoint}? Files and saved interpreter state are restored.",
            "The current state is saved first, as a checkpoint.",
        )
        self._confirm("Restore", lines, session, Restore(checkpoint=checkpoint))

    def allow(self, session: Session, host: str) -> None:
        lines = (
            f"Allow {clean_line(session.label)} to reach {clean_line(host)}?",
            "Data sent there leaves this machine.",
        )
        self._confirm("Allow", lines, session, Allow(hosts=(host,)))

    # Shared.

    def pause(self, session: Session) -> None:
        name = clean_line(session.label)
        if session.sandbox not in REMEMBERING:
            key = self.app.keys.shown("freeze")
            refusal = f"A {session.sandbox} sandbox cannot pause to disk; {key} pauses {name} in RAM."
            self.app.say(refusal, severity="warning")
        elif sleeps_on_disk(session):
            self.app.say(f"{name} is already paused to disk.")
        else:
            self.send(session, Pause(to_disk=True))

    def resume(self, session: Session) -> None:
        """Resume it; if its memory is on disk and unusable, the user first confirms resuming without it."""
        if sleeps_on_disk(session) and session.mode is Mode.INTERPRETER:
            self.app.run_worker(self._check_and_wake(session), group="dialog", exclusive=True)
        else:
            self.send(session, Resume())

    async def _check_and_wake(self, session: Session) -> None:
        from kasmon.tui.sandbox.entries import explain_refusal  # imports all sandbox history modules

        gateway, location = self.app.gateway, find_location(self.app)
        try:
            past = await gateway.sandbox(session.id) if gateway is not None else None
        except KasmonError:
            past = None  # resuming reports that error
        why = explain_refusal(past) if past is not None else ""
        if not why:
            self.send(session, Resume())
            return
        lines = (
            f"The memory snapshot of {clean_line(session.label)} cannot be used: {why}.",
            "Resuming keeps the files. Interpreter state that was not saved is lost.",
        )
        if location == find_location(self.app):  # resuming is as slow as creating one, and the list shows it
            resume = partial(self.send, session, Resume())
            confirm_action(self.app, "Resume without memory", lines, "resume anyway", resume)
        else:
            self.app.say(lines[0], severity="warning")

    def send(self, session: Session, command: SandboxCommand) -> None:
        self.app.run_operation(lambda operations: operations.change_sandbox(session.id, command))

    def _confirm(self, title: str, lines: tuple[str, ...], session: Session, command: SandboxCommand) -> None:
        confirm_operation(
            self.app, title, lines, title.lower(), lambda operations: operations.change_sandbox(session.id, command)
        )

    def ask_fork_name(self, session: Session, checkpoint: str, *, replays: bool = False) -> None:
        from kasmon.tui.sandbox.fork_dialog import ForkDialog

        app = self.app
        taken = [each.name for each in app.fleet.sessions]
        app.push_screen(ForkDialog(app.look, app.keys, session, checkpoint, taken, replays=replays))

    def _sandboxed(self) -> Session | None:
        session = self.app.main_view.table.selected_session
        if session is not None and session.sandbox_state is None:
            self.app.say(f"{clean_line(session.label)} has no sandbox.", severity="warning")
            return None
        return session

    def _with_live_sandbox(self) -> Session | None:
        """The selected session if its sandbox exists; notify the user if not."""
        session = self._sandboxed()
        if session is not None and session.state not in ALIVE:
            name, key = clean_line(session.label), self.app.keys.shown("restart")
            self.app.say(f"The sandbox of {name} no longer exists; {key} restarts it.", severity="warning")
            return None
        return session

    def _with_interpreters(self) -> Session | None:
        session = self._with_live_sandbox()
        if session is not None and session.mode is not Mode.INTERPRETER:
            name = clean_line(session.label)
            self.app.say(f"{name} is a sandboxed agent; only interpreter sandboxes can do that.", severity="warning")
            return None
        return session
