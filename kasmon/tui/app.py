"""The dashboard's composition root: it takes values from the gateway and runs its operations.

Nothing here or below opens a file or a socket, except `gateway`. The actions that keys trigger are in `actions/`; the
key table is in `keymap.py`, and each of its rows names what has its handler.
"""

import asyncio
import contextlib
import gc
import locale
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.command import CommandPalette, Provider

from kasmon.asyncio_tasks import wait_within
from kasmon.charset import needs_ascii
from kasmon.errors import KasmonError, of_system
from kasmon.model.collisions import CollisionSummary
from kasmon.model.fleet import Fleet, difference
from kasmon.model.formatting import session_label, state_label
from kasmon.model.permission import SessionId
from kasmon.repository.branch import BranchSummary
from kasmon.sanitize import clean_block
from kasmon.tui.action import KeyContext
from kasmon.tui.actions.dialogs import offer_links
from kasmon.tui.actions.general import GeneralActions
from kasmon.tui.actions.handlers import build_handlers
from kasmon.tui.actions.sandbox import SandboxActions
from kasmon.tui.actions.session import SessionActions
from kasmon.tui.actions.transcript import TranscriptActions
from kasmon.tui.app_protocols import OnFailure, OnOutcome
from kasmon.tui.clock import Clock, RealClock
from kasmon.tui.error_text import what_failed
from kasmon.tui.finish.controller import FinishController
from kasmon.tui.gateway.protocol import CardContext, DashboardSettings, FleetUpdate, Gateway, MemoryUse, Operation
from kasmon.tui.gateway.theme_library import ThemeLibrary
from kasmon.tui.key_dispatcher import KeyDispatcher
from kasmon.tui.keymap import ROWS, KeyMap
from kasmon.tui.main_view import MainView
from kasmon.tui.messages import (
    ActionRequested,
    CardClosed,
    DiffRequested,
    HitOpened,
    LayoutChanged,
    SearchRequested,
    SessionOpened,
    SplitChanged,
)
from kasmon.tui.notifications.controller import TOAST_S, NotificationController
from kasmon.tui.notifications.toasts import toasts
from kasmon.tui.permissions.controller import PermissionController
from kasmon.tui.plan_board.controller import PlanBoardController
from kasmon.tui.process.shutdown import exit_on_signals
from kasmon.tui.review.controller import ReviewController
from kasmon.tui.search.controller import SearchController
from kasmon.tui.session_pane import SessionPane
from kasmon.tui.textual_ext.app import SafeApp
from kasmon.tui.textual_ext.driver import find_tap_driver
from kasmon.tui.textual_ext.modal import Overlay, load_dialog_styles
from kasmon.tui.textual_ext.screen import MainScreen
from kasmon.tui.textual_ext.strips import lighten_strips
from kasmon.tui.textual_ext.timers import start_timer
from kasmon.tui.theme.look import ThemeStyles, news
from kasmon.tui.theme.theme import DEFAULT
from kasmon.tui.theme.user_settings import UserSettings

if TYPE_CHECKING:
    from kasmon.store.machines import MachineStatus
    from kasmon.tui.terminal.view import FocusView
    from kasmon.tui.transcript.event_view import EventView

Update = TypeVar("Update")

LATER_IMPORTS: Final = (
    "textual.widgets._text_area",
    "textual.widgets._input",
    "kasmon.tui.dialogs.common",
    "kasmon.tui.dialogs.new_session",
    "kasmon.tui.dialogs.prompt",
    "kasmon.tui.permissions.card.screen",
    "kasmon.tui.review.screen",
    "kasmon.tui.permissions.inbox.screen",
    "kasmon.tui.transcript.view",
    "kasmon.tui.transcript.prompt_box",
)
"""Slow imports that the first frame does not need."""
IMPORT_DELAY_S: Final = 0.1
"""Delay after the first frame before they are imported: another thread is still writing that frame to the terminal."""
FILTER_KEY_WAIT_S: Final = 1.0
"""The longest that a key waits for the one before it."""


class Kasmon(SafeApp, inherit_bindings=False):
    """The dashboard of one fleet. Without a gateway it shows *fleet* and runs no operation."""

    CSS_PATH = Path(__file__).with_name("kasmon.tcss")
    TITLE = "kasmon"
    ENABLE_COMMAND_PALETTE = False
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        lambda: import_module("kasmon.tui.palette").KasmonCommands
    }
    NOTIFICATION_TIMEOUT = TOAST_S

    def __init__(
        self,
        fleet: Fleet | None = None,
        gateway: Gateway | None = None,
        settings: DashboardSettings | None = None,
        *,
        clock: Clock | None = None,
        driver_class: type[Any] | None = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        lighten_strips()
        self.animation_level = "none"
        self.use_command_palette = True  # our own key opens it: the class variable would add Textual's binding
        self.gateway, self.clock = gateway, clock or RealClock()
        self.settings = settings or DashboardSettings()
        self.fleet = Fleet()
        self.machines: tuple[MachineStatus, ...] = ()
        """The registered machines, as last read."""
        self.memory = MemoryUse()
        """The memory of agents, as last read."""
        self.agents_go_on = True
        """Whether agents keep running after the dashboard closes; in a demo they stop."""
        self.keys = KeyMap()
        self.themes = ThemeLibrary()
        self.utf8 = _is_utf8(self.settings)
        self.user_settings = UserSettings(self)
        self.set_class(not self.utf8, "-ascii")
        self.set_class(self.no_color, "-plain")
        self.look = ThemeStyles(self.user_settings.theme_file(DEFAULT), utf8=self.utf8)
        self.general_actions = GeneralActions(self)
        self.session_actions = SessionActions(self, self.general_actions.open_new_session)
        self.sandbox_actions = SandboxActions(self)
        self.transcript_actions = TranscriptActions(self)
        actions = (self.general_actions, self.session_actions, self.sandbox_actions, self.transcript_actions)
        self.key_dispatcher = KeyDispatcher(self, build_handlers(*actions))
        self.perform = self.key_dispatcher.run
        self.permissions = PermissionController(self)
        self.plan_board = PlanBoardController(self)
        self.session_pane = SessionPane(self)
        self.search = SearchController(self)
        self.review = ReviewController(self)
        self.finish = FinishController(self)
        self.notifications = NotificationController(self)
        self.on_suspend: Callable[[], object] = lambda: None
        """Called in a thread before Ctrl+Z stops this process."""
        self.farewell = ""
        """What is printed after the user quits; empty if no agent keeps running."""
        self.main_view = MainView(self.look, self.clock, self.session_pane.make, self.session_pane.reuse)
        self.set_filters(utf8=self.utf8)
        self._first_fleet = fleet
        self.has_fleet = False
        self.last_key_at = self.clock.ticking()
        self.user_settings.adopt(self.settings)

    # Startup.

    def get_default_screen(self) -> MainScreen:
        return MainScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield self.main_view

    def refresh_css(self, animate: bool = True) -> None:
        """Apply the current theme. Without a screen yet, only set the variables: the sheet is parsed once, for it."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def on_mount(self) -> None:
        exit_on_signals(self, self.on_suspend)
        if (driver := find_tap_driver(self)) is not None:
            driver.on_background = self.user_settings.use_background
            self.user_settings.use_background(bool(driver.background.is_light))
        self.main_view.begin(self.settings)
        if self._first_fleet is not None:
            cards = (
                {} if self.gateway else dict.fromkeys((each.id for each in self._first_fleet.sessions), CardContext())
            )
            self._show_update(FleetUpdate(self._first_fleet, cards))
        self.main_view.table.focus()
        self.offer_keys()
        self.set_interval(1.0, self.main_view.tick)
        self.set_interval(1.0, self.notifications.tick)
        self.permissions.start()
        if self.gateway is not None:
            self.gateway.subscribe(self.session_pane.handle_push)
            self.run_worker(self.gateway.follow_fleet(self._show_update), group="fleet")
            self.run_worker(self._follow_settings(), group="settings")
        self.call_after_refresh(start_timer, self, IMPORT_DELAY_S, self._finish_startup)

    def read_clipboard(self, on_reply: Callable[[bytes, str], object]) -> bool:
        """Do as `TapDriver.read_clipboard`; return whether there is a terminal to ask."""
        if (driver := find_tap_driver(self)) is not None:
            driver.read_clipboard(on_reply)
        return driver is not None

    def _finish_startup(self) -> None:
        """Collect startup's garbage, exempt the rest from later collections, and start the background workers."""
        if not gc.isenabled():  # `cli.dashboard.show` disabled it for the start
            gc.collect()
            gc.freeze()
            gc.enable()
        load_dialog_styles(self.stylesheet)
        self.stylesheet.parse()
        self.run_worker(self._preload_modules, thread=True, group="imports")
        if self.gateway is not None:
            branches = self.gateway.branches(lambda: self.notifications.is_there)
            self.run_worker(_follow(self.gateway.boards(), self.plan_board.show_boards), group="plans")
            self.run_worker(_follow(self.gateway.fleet_machines(), self._show_machines), group="machines")
            self.run_worker(_follow(self.gateway.memory(), self._show_memory), group="memory")
            self.run_worker(_follow(self.gateway.collisions(), self._show_collisions), group="collisions")
            self.run_worker(_follow(branches, self._show_branches), group="branches")
            self.run_worker(self.gateway.update_search_index(), group="search-index")

    def _preload_modules(self) -> None:
        """In a thread: import and load what a dialog would otherwise have to wait for."""
        for name in LATER_IMPORTS:
            import_module(name)
        self.themes.all()

    def _show_machines(self, machines: "tuple[MachineStatus, ...]") -> None:
        self.notifications.update_machines(machines)
        self.machines = machines
        self.main_view.show_machines(len(machines), sum(each.is_unreachable for each in machines))

    def _show_memory(self, memory: MemoryUse) -> None:
        self.memory = memory
        self.main_view.show_memory(memory.total_bytes, memory.budget_bytes)
        self.session_actions.note_memory()

    def _show_collisions(self, collisions: Mapping[SessionId, CollisionSummary]) -> None:
        self.main_view.table.mark(collisions)
        self.plan_board.mark(collisions)

    def _show_branches(self, branches: Mapping[SessionId, BranchSummary]) -> None:
        self.main_view.show_branches(branches)
        self.finish.show_branches(branches)

    async def _follow_settings(self) -> None:
        assert self.gateway is not None
        is_first = True
        async for settings in self.gateway.settings():
            before = self.settings
            if is_first:
                is_first = False
                self.main_view.begin(settings)
            await asyncio.to_thread(self.themes.get, settings.theme)  # a shipped theme's file is read once
            self.user_settings.adopt(settings)
            for problem in settings.problems:
                if problem not in before.problems:
                    self.say(problem, severity="error")

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.hold_still()
            self.permissions.check_soon()
            self.session_pane.leave_terminal()
            if self.session_pane.send_early_key(event):
                return
            self.key_dispatcher.restore_focus()
            if self.key_dispatcher.press(event):
                return
            if self.screen.focused is not None and self.screen.focused is self.main_view.filter_bar.box:
                await self._write_filter(event)
                return
        await super().on_event(event)

    async def _write_filter(self, key: events.Key) -> None:
        """Send *key* to the filter box; if it closes the filter, wait until the list has the focus."""
        left = self.main_view.filter_bar.left_by(key)
        await super().on_event(key)
        if left is not None:
            await wait_within(FILTER_KEY_WAIT_S, left)

    def hold_still(self) -> None:
        """Note that the user just did something: for a while nothing moves and no request pops up."""
        self.last_key_at = self.main_view.table.last_key_at = self.clock.ticking()

    def quiet_for(self) -> float:
        """Return the seconds since the last key."""
        return self.clock.ticking() - self.last_key_at

    @property
    def list_has_keys(self) -> bool:
        """Whether the list has the focus and no screen covers it."""
        on_top = len(self.screen_stack) == 1 and self.screen.focused is self.main_view.table
        return on_top and not self.is_too_small

    @property
    def is_too_small(self) -> bool:
        """Whether the window only fits the "too small" notice, and no screen covers that."""
        return len(self.screen_stack) == 1 and self.main_view.has_class("-too-small")

    # The fleet.

    def _show_update(self, update: FleetUpdate) -> None:
        fleet = update.fleet
        change = difference(self.fleet, fleet) if update.change is None else update.change
        known = self.main_view.table.session
        before = {each.id: was for each in change.changed if (was := known(each.id)) is not None}
        self.fleet = fleet
        opened_session = (
            self.main_view.preview.session if self.main_view.focused_inside else None
        )  # a notification would cover its question
        others = [session for session in change.changed if opened_session is None or session.id != opened_session.id]
        toasts_shown = toasts(before, others) if self.has_fleet else []
        if self.has_fleet:
            self.notifications.update(before, change)
        if not fleet.sessions and not self.has_fleet:
            self.run_worker(self._offer_agents(), group="welcome")
        self.has_fleet = True
        self.main_view.show_change(fleet, change)
        if self.main_view.focused_inside and self.main_view.preview.session is None:
            self.session_pane.leave()  # it was removed while open
        self.session_pane.update_session()
        self.permissions.update(change.changed, change.gone, update.cards)
        for gone in change.gone:
            self.session_pane.forget(gone)
        for above in (screen for screen in self.screen_stack if isinstance(screen, Overlay)):
            above.follow(fleet)
        self.notifications.show(toasts_shown)
        self.permissions.show_notice()
        self.offer_keys()

    async def _offer_agents(self) -> None:
        if self.gateway is not None:
            with contextlib.suppress(KasmonError):  # the list still shows the keys; a dialog reports what is wrong
                self.main_view.table.offer(await self.gateway.offers())

    def run_operation(
        self, operation: Operation, *, done: OnOutcome | None = None, failed: OnFailure | None = None
    ) -> None:
        """Run *operation* in the background, and notify the user of its outcome unless *done* or *failed* show it."""
        if (gateway := self.gateway) is None:
            return

        async def run() -> None:
            try:
                text = await operation(await gateway.operations()) or ""
            except (KasmonError, OSError) as error:
                reason = of_system(error) if isinstance(error, OSError) else error
                if failed is None or not failed(reason):
                    self.say(what_failed(reason), severity="error")
            else:
                if not (done is not None and done(text)) and text:
                    self.say(text)

        self.run_worker(run(), group="operations")

    def say(self, text: str, *, severity: Literal["information", "warning", "error"] = "information") -> None:
        """Show *text* as a short notification; a hint may follow on a line of its own."""
        self.notify(clean_block(text), severity=severity, markup=False)

    def palette_sessions(self) -> Iterator[tuple[SessionId, str, str]]:
        """Yield id, name and state of every session, those that need attention first."""
        for session in self.main_view.table.shown():
            news_text = "".join(text for text, _ in news(session, self.clock.now()))
            yield session.id, session_label(session, session.id), f"{state_label(session)}  {news_text}"

    @property
    def is_palette_open(self) -> bool:
        return any(isinstance(screen, CommandPalette) for screen in self.screen_stack)

    def action_command_palette(self) -> None:
        if not self.is_palette_open:
            self.push_screen(CommandPalette(placeholder="Search commands and sessions", id="--command-palette"))

    # Keys.

    def on_key_context_changed(self) -> None:
        self.offer_keys()
        self.permissions.show_notice()

    def offer_keys(self) -> None:
        self.key_dispatcher.offer()

    # Messages of widgets: each goes to the controller in charge.

    def on_action_requested(self, message: ActionRequested) -> None:
        """Run what was clicked or chosen in the palette; an action of the list first leaves an open session."""
        action = ROWS[message.action]
        if self.main_view.focused_inside and action.where is KeyContext.LIST:
            self.session_pane.leave()
        self.perform(action)

    def on_split_changed(self, message: SplitChanged) -> None:
        self.run_operation(lambda operations: operations.save_split(message.split))

    def on_layout_changed(self, message: LayoutChanged) -> None:
        self.run_operation(lambda operations: operations.save_layout(message.layout))

    def on_card_closed(self, message: CardClosed) -> None:
        self.permissions.close(message.put_off)

    def on_plan_board_closed(self) -> None:
        self.plan_board.close()

    def on_diff_requested(self, message: DiffRequested) -> None:
        if (session := self.main_view.table.session(message.session)) is not None:
            self.review.open(session)

    def on_focus_view_left(self) -> None:
        self.session_pane.leave_terminal()

    def on_focus_view_read_wanted(self, message: "FocusView.ReadWanted") -> None:
        if (session := self.main_view.table.session(message.session)) is not None:
            self.session_pane.read_terminal(session, message.up)

    def on_focus_view_waiting_clicked(self) -> None:
        self.permissions.open()

    def on_session_opened(self, message: SessionOpened) -> None:
        self.permissions.close(())
        self.plan_board.close()
        self.call_later(self.session_pane.enter, message.session)

    def on_event_view_code_clicked(self, message: "EventView.CodeClicked") -> None:
        self.session_pane.put_on_clipboard(message.piece.text, message.piece.what)

    def on_event_view_link_clicked(self, message: "EventView.LinkClicked") -> None:
        offer_links(self, message.addresses)

    def on_search_requested(self, message: SearchRequested) -> None:
        self.search.search_for(message.words)

    def on_hit_opened(self, message: HitOpened) -> None:
        self.search.go_to(message.hit)

    def on_search_closed(self) -> None:
        self.search.close()


async def _follow(updates: AsyncIterator[Update], show: Callable[[Update], None]) -> None:
    async for update in updates:
        show(update)


def _is_utf8(settings: DashboardSettings) -> bool:
    if settings.ascii != "auto":
        return settings.ascii == "no"
    return locale.getencoding().lower().replace("-", "") == "utf8" and not needs_ascii()
