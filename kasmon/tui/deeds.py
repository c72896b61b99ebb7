"""What each action of the key table does. One method for each; its name is the action's id.

Those on the selected session stand in `selected`, those on its sandbox in `sandbox_deeds`, those inside a structured
session in `reading`.
"""

from typing import TYPE_CHECKING

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.attention import need
from kasmon.model.permission import SessionId
from kasmon.model.state import ALIVE
from kasmon.tui.order import Sort, View
from kasmon.tui.reading import ReadingDeeds
from kasmon.tui.sandbox_deeds import SandboxDeeds
from kasmon.tui.selected import SelectedDeeds
from kasmon.tui.sentence import sentence

if TYPE_CHECKING:
    from kasmon.tui.adopting import Adopting
    from kasmon.tui.app import Kasmon
    from kasmon.tui.new_session import NewSession


class Deeds(SelectedDeeds, ReadingDeeds, SandboxDeeds):
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

    # All sessions.

    def new(self) -> None:
        """The dialog is there at once, for the keys that follow; its agents come when they are known."""
        from kasmon.tui.new_session import NewSession

        app = self.app
        names = [session.name for session in app.fleet.sessions]
        dialog = NewSession(app.look, app.keys, app.clock, app.settings.workdir, names)
        app.push_screen(dialog)
        app.run_worker(self._offer(dialog), group="dialog", exclusive=True)

    async def _offer(self, dialog: "NewSession") -> None:
        world = self.app.world
        if world is None:
            dialog.offer_agents(())
            return
        try:
            dialog.offer_sandboxes(await world.sandboxes())
            dialog.offer_agents(await world.offers(self.app.settings.workdir))
        except KasmonError as error:
            dialog.cannot_offer(error)
        else:
            dialog.offer_machines(await world.machines())

    def tell_folder(self, folder: str) -> None:
        self.app.run_worker(self._tell_folder(folder), group="folder", exclusive=True)

    async def _tell_folder(self, folder: str) -> None:
        from kasmon.tui.new_session import NewSession

        dialog = self.app.screen
        if self.app.world is None or not isinstance(dialog, NewSession):
            return
        try:
            notice = await self.app.world.folder_notice(folder)
        except KasmonError as error:
            notice = sentence(error.message)
        dialog.tell_folder(notice)

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

    def search(self) -> None:
        self.app.searching.open()

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
                app.taste.show_theme,
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

    def _look_at(self, view: View, **changes: object) -> None:
        self.app.desk.look_at(msgspec.structs.replace(view, **changes))
