"""What the keys do with the selected session: open it, tell it something, end it, see its changes and why it is so."""

from collections.abc import Sequence
from typing import Final

from kasmon.clean import clean_line
from kasmon.errors import InteractiveOnlyError, KasmonError
from kasmon.model.command import Interrupt, Mode, Stop
from kasmon.model.session import Session
from kasmon.model.state import ALIVE
from kasmon.model.text import Line, Token, fitted
from kasmon.tui.hands import Hands
from kasmon.tui.meter import can
from kasmon.tui.sentence import what_failed
from kasmon.tui.world import Export, Forget, MoveTo, Restart, Tell

EXPLAINED: Final = 12
"""So many cells of an explanation's line are the word before its text."""


class SelectedDeeds(Hands):
    """The hands of the app on the selected session."""

    # The session.

    def open(self) -> None:
        if (session := self._selected()) is not None:
            self.app.inside.enter(session.id)
        elif self.app.fleet.sessions:
            self.app.desk.table.toggle_fold()
        else:
            self.app.deeds.new()

    def attach(self) -> None:
        session = self._selected()
        if session is None:
            return
        if session.mode is not Mode.TMUX:
            error = InteractiveOnlyError(clean_line(session.name))
            self.app.say(what_failed(error), severity="warning")
        else:
            self.app.inside.attach(session.id)

    def message(self) -> None:
        if (session := self._alive()) is not None:
            self._write_to([session])

    def interrupt(self) -> None:
        session = self._alive()
        if session is not None and not can(session, "interrupts"):
            self.app.say(f"{clean_line(session.name)} cannot be interrupted.", severity="warning")
        elif session is not None:
            self.app.want(Tell(session=session.id, wish=Interrupt()))

    def stop(self) -> None:
        session = self._alive()
        if session is None:
            return
        if session.adopted:
            name, key = clean_line(session.name), self.app.keys.shown("forget")
            self.app.say(f"{name} runs in your own tmux: end it there. {key} lets go of it.", severity="warning")
            return
        busy = "It is in the middle of a turn." if session.state.value in ("working", "asking") else ""
        lines = [f"{session.name} is asked to finish, and ended if it does not.", busy, "Its log and its folder stay."]
        wanted = Tell(session=session.id, wish=Stop())
        self._ask("Stop", tuple(line for line in lines if line), "stop it", wanted)

    def restart(self) -> None:
        session = self._selected()
        if session is None:
            return
        if session.state in ALIVE and session.generation:
            self.app.say(f"{clean_line(session.name)} runs; stop it first.", severity="warning")
        else:
            self.app.want(Restart(session=session.id))

    def move(self) -> None:
        session = self._selected()
        if session is None:
            return
        if session.mode is Mode.INTERPRETER:
            self.app.say(
                f"{clean_line(session.name)} is no agent; interpreters stay where they are.", severity="warning"
            )
            return
        to = Mode.SDK if session.mode is Mode.TMUX else Mode.TMUX
        where = "as a structured session" if to is Mode.SDK else "in a terminal"
        lines = (f"{session.name} goes on {where}, with the same conversation.", "A turn that runs is never cut off.")
        self._ask("Move", lines, "move it", MoveTo(session=session.id, to=to))

    def rename(self) -> None:
        if (session := self._selected()) is not None:
            from kasmon.tui.dialogs import NewName

            self.app.push_screen(NewName(self.app.look, self.app.keys, session))

    def forget(self) -> None:
        session = self._selected()
        if session is None:
            return
        if session.adopted and session.state in ALIVE:
            lines = (f"{session.name} leaves the list.", "It runs on in your own tmux, as it is.")
            self._ask("Let go", lines, "let it go", Forget(session=session.id))
            return
        if session.state in ALIVE and session.generation:
            self.app.say(f"{clean_line(session.name)} runs; stop it first.", severity="warning")
            return
        kept = "Its log stays on disk; nothing in its folder is touched."
        if session.mode is Mode.TMUX:
            kept = "Its log stays on disk, what its terminal printed does not; nothing in its folder is touched."
        lines = (f"{session.name} leaves the list.", kept)
        if session.mode is Mode.INTERPRETER:
            lines = (
                f"{session.name} leaves the list, with its checkpoints.",
                "Its files go too, unless they lie in a folder of yours.",
            )
        self._ask("Forget", lines, "forget it", Forget(session=session.id))

    def diff(self) -> None:
        """What the selected session changed."""
        if (session := self._selected()) is not None:
            self.show_diff(session)

    def show_diff(self, session: Session) -> None:
        """What *session*'s worktree changed; where it works in none, its last change."""
        self.app.run_worker(self._diff(session), group="dialog", exclusive=True)

    async def _diff(self, session: Session) -> None:
        name, world, diff, here = clean_line(session.name), self.app.world, "", self._here()
        why = f"No change of {name} has been seen."
        try:
            diff = await world.diff(session.id) if world is not None else ""
        except KasmonError as error:
            why = what_failed(error)
        from kasmon.model.changes import split
        from kasmon.tui.diff_screen import DiffScreen

        if here != self._here():
            return
        if files := split(diff):
            self.app.push_screen(DiffScreen(self.app.look, self.app.keys, name, files))
        elif last := self.app.inside.last_diff(session.id):
            from kasmon.tui.ask_text import diff_rows

            self._read(f"Last change of {name}", lambda width: diff_rows(last, width))
        else:
            self.app.say(why)

    def export(self) -> None:
        """Write all of the selected session into a file."""
        if (session := self._selected()) is not None:
            self.app.want(Export(session=session.id))

    def explain(self) -> None:
        """Why the selected session is in its state."""
        if (session := self._selected()) is not None:
            self.app.run_worker(self._explain(session), group="dialog", exclusive=True)

    async def _explain(self, session: Session) -> None:
        name, world, here = clean_line(session.name), self.app.world, self._here()
        try:
            told = await world.explained(session.id) if world is not None else ()
        except KasmonError as error:
            self.app.say(what_failed(error), severity="warning")
            return
        if told and here == self._here():
            self._read(f"Why {name} is {session.state}", lambda width: _explained(told, width))

    # Shared.

    def _alive(self) -> Session | None:
        """The selected session if its agent runs; says so if not."""
        session = self._selected()
        if session is not None and session.state not in ALIVE:
            key = self.app.keys.shown("restart")
            self.app.say(f"{clean_line(session.name)} does not run; {key} starts it again.", severity="warning")
            return None
        return session

    def _write_to(self, sessions: Sequence[Session]) -> None:
        from kasmon.tui.dialogs import Message

        self.app.push_screen(Message(self.app.look, self.app.keys, sessions))


def _explained(told: Sequence[str], width: int) -> list[Line]:
    """An explanation's lines as rows: what goes on in a further row stands under the text, not under its name."""
    rows = fitted([(told[0], Token.STRONG)], width)
    rest = ((" " * EXPLAINED, Token.TEXT),)
    for line in told[1:]:
        first = ((f"{line[:EXPLAINED]:<{EXPLAINED}}", Token.SUBJECT),)
        rows += fitted([(line[EXPLAINED:], Token.OUTPUT)], width, first, rest)
    return rows
