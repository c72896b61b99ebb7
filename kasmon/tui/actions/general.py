"""Actions on the list and on the dashboard as a whole."""

import os
from typing import TYPE_CHECKING, Protocol

from kasmon.model.agent_program import is_agent
from kasmon.model.attention import need
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session_state import ALIVE
from kasmon.tui.actions.dialogs import confirm, write_prompt
from kasmon.tui.session_list.layout import GroupKey
from kasmon.tui.session_list.order import SortOrder, group_values
from kasmon.tui.session_pane import PaneDashboard
from kasmon.tui.textual_ext.modal import Overlay

if TYPE_CHECKING:
    from kasmon.tui.finish.controller import FinishController
    from kasmon.tui.gateway.theme_library import ThemeLibrary
    from kasmon.tui.key_dispatcher import KeyDispatcher
    from kasmon.tui.permissions.controller import PermissionController
    from kasmon.tui.plan_board.controller import PlanBoardController
    from kasmon.tui.search.controller import SearchController
    from kasmon.tui.theme.user_settings import UserSettings


class GeneralDashboard(PaneDashboard, Protocol):
    agents_go_on: bool
    farewell: str
    theme: str

    @property
    def permissions(self) -> "PermissionController": ...
    @property
    def plan_board(self) -> "PlanBoardController": ...
    @property
    def search(self) -> "SearchController": ...
    @property
    def finish(self) -> "FinishController": ...
    @property
    def themes(self) -> "ThemeLibrary": ...
    @property
    def user_settings(self) -> "UserSettings": ...
    @property
    def key_dispatcher(self) -> "KeyDispatcher": ...
    def action_command_palette(self) -> None: ...
    def exit(self) -> None: ...


class GeneralActions:
    """The actions on the list and on the dashboard as a whole."""

    def __init__(self, app: GeneralDashboard) -> None:
        self.app = app

    def select_next(self) -> None:
        """Select the next session that needs attention; the preview then shows its request, if it has one."""
        if (wanted := self._next_that_needs()) is not None:
            self.app.main_view.table.select(wanted)

    def open_next(self) -> None:
        """Open the next session that needs attention, wherever the focus is, unless a dialog or the filter has it."""
        app = self.app
        if len(app.screen_stack) > 1 or app.main_view.filter_bar.box is not None:
            return
        if (wanted := self._next_that_needs()) is not None:
            app.session_pane.enter(wanted)

    def _next_that_needs(self) -> SessionId | None:
        """The next listed session that needs attention; notify the user if there is none."""
        app = self.app
        wanted = app.main_view.table.next_that_needs()
        if wanted is None:
            elsewhere = {one.id for one in app.fleet.sessions if need(one)} - {
                one.id for one in app.main_view.table.shown()
            }
            session = app.main_view.table.selected_session
            nobody = (
                "Nothing else needs attention" if session is not None and need(session) else "Nothing needs attention"
            )
            hidden = f" here; {len(elsewhere)} filtered out: {app.keys.shown('show_all')} clears the filter"
            app.say(f"{nobody}{hidden if elsewhere else ''}.")
        return wanted

    # All sessions.

    def open_new_session(self) -> None:
        from kasmon.tui.dialogs.new_session import NewSessionDialog

        app = self.app
        names = [session.name for session in app.fleet.sessions]
        ours = ("", os.uname().nodename)
        candidates = [each for each in app.fleet.sessions if each.workdir and each.machine in ours]
        candidates = [
            each for each in candidates if each.mode is not Mode.INTERPRETER
        ]  # their folder was made by kasmon
        recent = dict.fromkeys(each.workdir for each in sorted(candidates, key=lambda each: -each.created_at))
        dialog = NewSessionDialog(app.look, app.keys, app.settings.workdir, names, [*recent])
        app.push_screen(dialog)

    def adopt(self) -> None:
        from kasmon.tui.dialogs.adopt import AdoptDialog

        self.app.push_screen(AdoptDialog(self.app.look, self.app.keys))

    def broadcast(self) -> None:
        alive = [session for session in self.app.main_view.table.shown() if session.state in ALIVE]
        agents = [session for session in alive if is_agent(session, self.app.settings.agents)]
        if agents:
            write_prompt(self.app, agents, tuple(session for session in alive if session not in agents))
        elif alive:
            self.app.say("No agent in the list is running: only shells and commands.")
        else:
            self.app.say("No session in the list is running.")

    # The view.

    def sort(self) -> None:
        view = self.app.main_view.table.view
        has_machines = any(session.via for session in self.app.fleet.sessions)
        orders = tuple(order for order in SortOrder if has_machines or order is not SortOrder.MACHINE)
        self.app.main_view.change_settings(sort=orders[(orders.index(view.sort) + 1) % len(orders)])

    def toggle_waves(self) -> None:
        view = self.app.main_view.table.view
        self.app.main_view.change_settings(group=GroupKey.NONE if view.group is GroupKey.WAVE else GroupKey.WAVE)

    def group(self) -> None:
        """Group the rows by the next of tag, folder, plan, machine and account that sessions differ in, or by none."""
        view, sessions = self.app.main_view.table.view, self.app.fleet.sessions
        by_value = [each for each in GroupKey if each not in (GroupKey.NONE, GroupKey.WAVE)]
        useful = [each for each in by_value if len({group_values(session, each) for session in sessions}) > 1]
        if not useful:
            self.app.say("Nothing to group by: no two sessions differ in tag, folder, plan, machine or account.")
        order = (GroupKey.NONE, *useful)
        at = order.index(view.group) if view.group in order else 0
        self.app.main_view.change_settings(group=order[(at + 1) % len(order)])

    def change_tab(self, step: int) -> None:
        """Apply the saved filter that is *step* tabs further; the first tab has all sessions."""
        view, keys = self.app.main_view.table.view, self.app.keys
        if not view.filters:
            hint = f"{keys.shown('filter')} filters the list, then {keys.shown('save_filter')} saves the filter."
            self.app.say(f"No filter is saved. {hint}")
            return
        texts = ["", *(each.text for each in view.filters)]
        at = texts.index(view.filter) if view.filter in texts else 0
        self.app.main_view.change_settings(filter=texts[(at + step) % len(texts)])

    def save_filter(self) -> None:
        """Save the filter in force as a tab; rename or remove the tab if it has one."""
        from kasmon.tui.dialogs.list_settings import SavedFilterDialog

        app, view = self.app, self.app.main_view.table.view
        if not view.filter:
            app.say(f"No filter is in force. {app.keys.shown('filter')} filters the list.")
            return
        change = app.main_view.change_settings
        app.push_screen(
            SavedFilterDialog(app.look, app.keys, view.filter, view.filters, lambda filters: change(filters=filters))
        )

    def choose_columns(self) -> None:
        from kasmon.tui.dialogs.list_settings import ColumnsDialog

        app = self.app
        before, change = app.main_view.table.view.columns, app.main_view.change_settings
        app.push_screen(ColumnsDialog(app.look, app.keys, before, lambda columns: change(columns=columns)))

    # kasmon.

    def open_machines(self) -> None:
        from kasmon.tui.dialogs.machines import MachinesDialog

        self.app.push_screen(MachinesDialog(self.app.look, self.app.keys, self.app.clock))

    def open_settings(self) -> None:
        from kasmon.tui.dialogs.settings import LIGHT_KEY, SettingsDialog

        app = self.app
        app.push_screen(
            SettingsDialog(
                app.look,
                app.keys,
                app.themes.all(),
                app.theme,
                LIGHT_KEY if app.user_settings.is_light else "ui.theme",
                app.user_settings.show_theme,
                app.settings.config_path,
                (*app.settings.problems, *app.themes.problems),
            )
        )

    def help(self) -> None:
        from kasmon.tui.dialogs.base import Dialog
        from kasmon.tui.help import HelpDialog

        app, below = self.app, self.app.screen
        if isinstance(below, HelpDialog):
            below.dismiss()
            return
        contexts = below.contexts if isinstance(below, Overlay) else app.key_dispatcher.help_contexts
        offers = below.named_keys if isinstance(below, Dialog) else ()
        app.push_screen(HelpDialog(app.look, app.keys, contexts, offers))

    def quit(self) -> None:
        """Close at once, and print a line if agents keep running. A demo, whose agents stop, asks first."""
        from kasmon.tui.dialogs.common import Confirmation

        app = self.app
        if app.agents_go_on:
            if running := sum(session.exists for session in app.fleet.sessions):
                many = "1 agent is" if running == 1 else f"{running} agents are"
                app.farewell = f"{many} still running. Run `kasmon` to open the dashboard again."
            app.exit()
            return
        question = Confirmation("Quit", ("Quit the demo? Its agents stop too.",), "quit", deaf_s=0.0)
        confirm(self.app, question, lambda dialog: app.exit())
