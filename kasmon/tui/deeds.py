"""What each action of the key table does. One method for each; its name is the action's id."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.clean import clean_line
from kasmon.errors import InteractiveOnlyError, KasmonError
from kasmon.model.attention import need
from kasmon.model.changes import split
from kasmon.model.command import Interrupt, Mode, Stop
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import ALIVE
from kasmon.model.text import Line, Token, fitted
from kasmon.tui.meter import can
from kasmon.tui.order import Sort, View
from kasmon.tui.reading import ReadingDeeds
from kasmon.tui.world import Forget, MoveTo, Restart, Tell, Wanted

if TYPE_CHECKING:
    from kasmon.tui.adopting import Adopting
    from kasmon.tui.app import Kasmon
    from kasmon.tui.dialogs import NewSession, Question, Sure


EXPLAINED: Final = 12
"""So many cells of an explanation's line are the word before its text."""


class Deeds(ReadingDeeds):
    """The hands of the app."""

    def __init__(self, app: "Kasmon") -> None:
        self.app = app

    # Moving.

    def down(self) -> None:
        self.app.desk.table.move(1)

    def up(self) -> None:
        self.app.desk.table.move(-1)

    def page_down(self) -> None:
        self.app.desk.table.move(max(1, self.app.desk.table.size.height - 1))

    def page_up(self) -> None:
        self.app.desk.table.move(-max(1, self.app.desk.table.size.height - 1))

    def top(self) -> None:
        self.app.desk.table.select_index(0)

    def bottom(self) -> None:
        self.app.desk.table.select_index(len(self.app.desk.table.items))

    def next(self) -> None:
        """Also shows what the session asks, if it asks."""
        if (wanted := self._next_that_needs()) is not None:
            self.app.desk.table.select(wanted)

    def next_inside(self) -> None:
        """From wherever the keyboard is, as long as no dialog has it."""
        app = self.app
        if len(app.screen_stack) > 1 or app.desk.filter_bar.box is not None:
            return
        if (wanted := self._next_that_needs()) is not None:
            app.inside.enter(wanted)

    def _next_that_needs(self) -> SessionId | None:
        """The next session of the list that needs a person; where there is none, it says so."""
        app = self.app
        wanted = app.desk.table.next_that_needs()
        if wanted is None:
            elsewhere = {one.id for one in app.fleet.sessions if need(one)} - {one.id for one in app.desk.table.shown()}
            here = app.desk.table.selected
            session = None if here is None else app.desk.table.session(here)
            nobody = "Nobody else needs you" if session is not None and need(session) else "Nobody needs you"
            hidden = f" here; {len(elsewhere)} not in the list: {app.keys.shown('show_all')} shows all"
            app.say(f"{nobody}{hidden if elsewhere else ' right now'}.")
        return wanted

    # The selected session.

    def open(self) -> None:
        if (session := self._selected()) is not None:
            self.app.inside.enter(session.id)
        else:
            self.app.desk.table.toggle_fold()

    def attach(self) -> None:
        session = self._selected()
        if session is None:
            return
        if session.mode is not Mode.TMUX:
            error = InteractiveOnlyError(clean_line(session.name))
            self.app.say(f"{error.message} {error.hint}", severity="warning")
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
            self._want(Tell(session=session.id, wish=Interrupt()))

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
            self._want(Restart(session=session.id))

    def move(self) -> None:
        session = self._selected()
        if session is None:
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
        lines = (f"{session.name} leaves the list.", "Its log stays on disk; nothing in its folder is touched.")
        self._ask("Forget", lines, "forget it", Forget(session=session.id))

    def diff(self) -> None:
        """What the selected session changed."""
        if (session := self._selected()) is not None:
            self.show_diff(session)

    def show_diff(self, session: Session) -> None:
        """What *session*'s worktree changed; where it works in none, its last change."""
        self.app.run_worker(self._diff(session), group="dialog", exclusive=True)

    async def _diff(self, session: Session) -> None:
        name, world, diff = clean_line(session.name), self.app.world, ""
        why = f"No change of {name} has been seen."
        try:
            diff = await world.diff(session.id) if world is not None else ""
        except KasmonError as error:
            why = f"{error.message} {error.hint}".strip()
        from kasmon.tui.diff_screen import DiffScreen

        if files := split(diff):
            self.app.push_screen(DiffScreen(self.app.look, self.app.keys, name, files))
        elif last := self.app.inside.last_diff(session.id):
            from kasmon.tui.ask_text import diff_rows

            self._read(f"Last change of {name}", lambda width: diff_rows(last, width))
        else:
            self.app.say(why)

    def explain(self) -> None:
        """Why the selected session is in its state."""
        if (session := self._selected()) is not None:
            self.app.run_worker(self._explain(session), group="dialog", exclusive=True)

    async def _explain(self, session: Session) -> None:
        name, world = clean_line(session.name), self.app.world
        try:
            told = await world.explained(session.id) if world is not None else ()
        except KasmonError as error:
            self.app.say(f"{error.message} {error.hint}", severity="warning")
            return
        if told:
            self._read(f"Why {name} is {session.state}", lambda width: _explained(told, width))

    # All sessions.

    def new(self) -> None:
        """The dialog is there at once, for the keys that follow; its agents come when they are known."""
        from kasmon.tui.dialogs import NewSession

        app = self.app
        names = [session.name for session in app.fleet.sessions]
        dialog = NewSession(app.look, app.keys, app.settings.workdir, names)
        app.push_screen(dialog)
        app.run_worker(self._offer(dialog), group="dialog", exclusive=True)

    async def _offer(self, dialog: "NewSession") -> None:
        world = self.app.world
        dialog.offer_agents(await world.offers() if world is not None else ())

    def adopt(self) -> None:
        """The dialog is there at once; the panes come when they are known."""
        from kasmon.tui.adopting import Adopting

        app = self.app
        dialog = Adopting(app.look, app.keys)
        app.push_screen(dialog)
        app.run_worker(self._list_panes(dialog), group="dialog", exclusive=True)

    async def _list_panes(self, dialog: "Adopting") -> None:
        world = self.app.world
        try:
            dialog.offer_panes(await world.foreign_panes() if world is not None else ())
        except KasmonError as error:
            dialog.nothing(error)

    def broadcast(self) -> None:
        sessions = [session for session in self.app.desk.table.shown() if session.state in ALIVE]
        if sessions:
            self._write_to(sessions)
        else:
            self.app.say("No session in the list runs.")

    def inbox(self) -> None:
        self.app.inbox.open()

    def all_requests(self) -> None:
        self.app.inbox.open_list()

    def board(self) -> None:
        self.app.waves.open()

    # The view.

    def filter(self) -> None:
        self.app.desk.begin_filter(self.app.keys)

    def show_all(self) -> None:
        self.app.desk.show_all()

    def sort(self) -> None:
        view = self.app.desk.table.view
        orders = tuple(Sort)
        self._look_at(view, sort=orders[(orders.index(view.sort) + 1) % len(orders)])

    def waves(self) -> None:
        view = self.app.desk.table.view
        self._look_at(view, by_wave=not view.by_wave)

    def fold(self) -> None:
        self.app.desk.table.fold(shut=True)

    def unfold(self) -> None:
        self.app.desk.table.fold(shut=False)

    def preview(self) -> None:
        self.app.desk.toggle_preview()

    def pin(self) -> None:
        self.app.desk.pin()

    def preview_up(self) -> None:
        self.app.inside.scroll(-1)

    def preview_down(self) -> None:
        self.app.inside.scroll(1)

    # Inside a session.

    def leave_prompt(self) -> None:
        self.app.inside.leave()

    def leave_focus(self) -> None:
        self.app.inside.leave()

    def read_up(self) -> None:
        self.app.inside.scroll(-1)

    def read_down(self) -> None:
        self.app.inside.scroll(1)

    # kasmon.

    def settings(self) -> None:
        from kasmon.tui.settings import SettingsDialog

        app = self.app
        app.push_screen(
            SettingsDialog(
                app.look,
                app.keys,
                app.themes.all(),
                app.theme,
                app.show_theme,
                app.settings.config_path,
                (*app.settings.problems, *app.themes.problems),
            )
        )

    def help(self) -> None:
        from kasmon.tui.help import help_rows

        app = self.app
        self._read("Keys", lambda width: help_rows(app.keys, app.look, width))

    def palette(self) -> None:
        self.app.action_command_palette()

    def quit(self) -> None:
        from kasmon.tui.dialogs import Question

        running = sum(session.exists for session in self.app.fleet.sessions)
        many = "1 agent goes on." if running == 1 else f"{running} agents go on."
        goes_on = f"{many} `kasmon` shows them again." if running else "No agent runs."
        if not self.app.agents_go_on:
            goes_on = "The demo ends with it, and its agents too."
        question = Question("Quit", ("The dashboard closes.", goes_on), "quit", deaf_s=0.0)
        self._sure(question, lambda dialog: self.app.exit())

    # Shared.

    def _selected(self) -> Session | None:
        table = self.app.desk.table
        return table.session(table.selected) if table.selected is not None else None

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

    def _want(self, wanted: Wanted) -> None:
        self.app.want(wanted)

    def _ask(self, title: str, lines: tuple[str, ...], yes: str, wanted: Wanted) -> None:
        from kasmon.tui.dialogs import Question

        self._sure(Question(title, lines, yes), lambda dialog: dialog.want(wanted))

    def _sure(self, question: "Question", then: "Callable[[Sure], None]") -> None:
        from kasmon.tui.dialogs import Sure

        self.app.push_screen(Sure(self.app.look, self.app.keys, self.app.clock, question, then))

    def _read(self, title: str, rows: Callable[[int], Sequence[Line]]) -> None:
        from kasmon.tui.dialogs import Reading

        self.app.push_screen(Reading(self.app.look, self.app.keys, title, rows))

    def _look_at(self, view: View, **changes: object) -> None:
        self.app.desk.look_at(msgspec.structs.replace(view, **changes))


def _explained(told: Sequence[str], width: int) -> list[Line]:
    """An explanation's lines as rows: what goes on in a further row stands under the text, not under its name."""
    rows = fitted([(told[0], Token.STRONG)], width)
    rest = ((" " * EXPLAINED, Token.TEXT),)
    for line in told[1:]:
        first = ((f"{line[:EXPLAINED]:<{EXPLAINED}}", Token.SUBJECT),)
        rows += fitted([(line[EXPLAINED:], Token.OUTPUT)], width, first, rest)
    return rows
