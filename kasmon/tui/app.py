"""The dashboard's composition root: it takes values from the gateway and sends commands to it.

Nothing here or below opens a file or a socket, except `gateway`. The actions that keys trigger are in `actions/`, the
key table is in `keymap.py`, and `message_handlers.py` routes the widgets' messages.
"""

import asyncio
import contextlib
import gc
import locale
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from textual import events
from textual.app import ComposeResult
from textual.command import CommandPalette, Provider
from textual.filter import LineFilter, Monochrome

from kasmon.charset import wants_ascii
from kasmon.errors import KasmonError
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.sanitize import clean_block
from kasmon.tui.action import KeyContext
from kasmon.tui.actions.general import GeneralActions
from kasmon.tui.clock import Clock, RealClock
from kasmon.tui.command_runner import CommandRunner
from kasmon.tui.gateway.protocol import DashboardSettings, Gateway
from kasmon.tui.keymap import ACTIONS, KeyMap
from kasmon.tui.main_view import MainView
from kasmon.tui.message_handlers import MessageHandlers
from kasmon.tui.messages import KeyContextChanged
from kasmon.tui.notifications.controller import NotificationController
from kasmon.tui.notifications.toasts import Toast, shortened, toasts
from kasmon.tui.permissions.controller import PermissionController
from kasmon.tui.plan_board.controller import PlanBoardController
from kasmon.tui.process.shutdown import keep_clean
from kasmon.tui.search.controller import SearchController
from kasmon.tui.session_list.order import difference
from kasmon.tui.session_pane import SessionPane
from kasmon.tui.status_bars import is_offered, offers
from kasmon.tui.textual_ext.ascii_shapes import AsciiFilter
from kasmon.tui.textual_ext.line_filters import ControlCharacterFilter, MonochromeFilter, log_crash
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.textual_ext.screen import MainScreen
from kasmon.tui.textual_ext.strips import lighten_strips
from kasmon.tui.theme.library import ThemeLibrary
from kasmon.tui.theme.look import ThemeStyles, news, session_label, state_word
from kasmon.tui.theme.theme import DEFAULT
from kasmon.tui.theme.user_settings import UserSettings

LATER_IMPORTS: Final = (
    "textual.widgets._text_area",
    "textual.widgets._input",
    "kasmon.tui.dialogs.common",
    "kasmon.tui.dialogs.new_session",
    "kasmon.tui.permissions.card_screen",
    "kasmon.tui.permissions.inbox_screen",
    "kasmon.tui.transcript.view",
    "kasmon.tui.transcript.prompt_box",
)
"""Slow imports that the first frame does not need."""
IMPORT_DELAY_S: Final = 0.1
"""Delay after the first frame before they are imported: another thread is still writing that frame to the terminal."""
NO_CODE: Final = frozenset({"submit", "read", "queue"})
"""Prompt box actions whose keys do something else in the code box."""
FILTER_KEY_WAIT_S: Final = 1.0
"""The longest that a key waits for the one before it."""


class Kasmon(MessageHandlers, inherit_bindings=False):
    """The dashboard of one fleet. Without a gateway it shows *fleet* and drops every command."""

    CSS_PATH = Path(__file__).with_name("kasmon.tcss")
    TITLE = "kasmon"
    ENABLE_COMMAND_PALETTE = False
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        lambda: import_module("kasmon.tui.palette").KasmonCommands
    }
    NOTIFICATION_TIMEOUT = 4

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
        self.agents_go_on = True
        """Whether agents keep running after the dashboard closes; in a demo they stop."""
        self.keys = KeyMap()
        self.themes = ThemeLibrary()
        self.utf8 = _is_utf8(self.settings)
        self.user_settings = UserSettings(self)
        self.set_class(not self.utf8, "-ascii")
        self.set_class(self.no_color, "-plain")
        self.look = ThemeStyles(self.user_settings.theme_file(DEFAULT), utf8=self.utf8)
        self.actions = GeneralActions(self)
        self.permissions = PermissionController(self)
        self.plan_board = PlanBoardController(self)
        self.session_pane = SessionPane(self)
        self.search = SearchController(self)
        self.notifications = NotificationController(self)
        self.commands = CommandRunner(self)
        self.crash = ""
        """What is printed once the terminal is restored; empty unless the dashboard crashed."""
        self.on_suspend: Callable[[], object] = lambda: None
        """Called in a thread before Ctrl+Z stops this process."""
        self.farewell = ""
        """What is printed after the user quits; empty if no agent keeps running."""
        self.main_view = MainView(self.look, self.clock, self.session_pane.make)
        self._filters: list[LineFilter] = [each for each in self._filters if not isinstance(each, Monochrome)]
        self._filters += [ControlCharacterFilter(), *([MonochromeFilter()] if self.no_color else [])]
        self._filters += [] if self.utf8 else [AsciiFilter()]
        self._first_fleet = fleet
        self.has_fleet = False
        self.last_key_at = self.clock.ticking()
        self._toasted_at: dict[Toast, float] = {}
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
        keep_clean(self, self.on_suspend)
        self.main_view.begin(preview=self.settings.preview, split=self.settings.split)
        if self._first_fleet is not None:
            self._take(self._first_fleet)
        self.main_view.table.focus()
        self.offer_keys()
        self.set_interval(1.0, self.main_view.tick)
        self.set_interval(1.0, self.notifications.tick)
        self.permissions.start()
        if self.gateway is not None:
            self.gateway.hear(self.session_pane.heard)
            self.run_worker(self._follow_fleet(), group="fleet")
            self.run_worker(self._follow_settings(), group="settings")
        self.call_after_refresh(self.set_timer, IMPORT_DELAY_S, self._finish_startup)

    def _finish_startup(self) -> None:
        """Collect startup's garbage, exempt the rest from later collections, and start the background workers."""
        gc.collect()
        gc.freeze()
        gc.enable()
        self.run_worker(self._preload_modules, thread=True, group="imports")
        if self.gateway is not None:
            self.run_worker(self.plan_board.follow(), group="plans")
            self.run_worker(self._follow_collisions(), group="collisions")
            self.run_worker(self.gateway.keep_searchable(), group="search-index")

    def _preload_modules(self) -> None:
        """In a thread: import and load what a dialog would otherwise have to wait for."""
        for name in LATER_IMPORTS:
            import_module(name)
        self.themes.all()

    async def _follow_fleet(self) -> None:
        assert self.gateway is not None
        async for fleet in self.gateway.changes():
            self._take(fleet)

    async def _follow_collisions(self) -> None:
        assert self.gateway is not None
        async for collisions in self.gateway.collisions():
            self.main_view.table.mark(collisions)
            self.plan_board.mark(collisions)

    async def _follow_settings(self) -> None:
        assert self.gateway is not None
        is_first = True
        async for settings in self.gateway.settings():
            before = self.settings
            if is_first:
                is_first = False
                self.main_view.begin(preview=settings.preview, split=settings.split)
            await asyncio.to_thread(self.themes.get, settings.theme)  # a shipped theme's file is read once
            self.user_settings.adopt(settings)
            for problem in settings.problems:
                if problem not in before.problems:
                    self.say(problem, severity="error")

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.hold_still()
            self.permissions.look_soon()
            self._restore_focus()
            if self._run_own_key(event):
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FILTER_KEY_WAIT_S):
                    await left.wait()

    def _run_own_key(self, key: events.Key) -> bool:
        """Run the dashboard action of *key* at once; return False where the focused widget gets the key.

        Not by Textual's bindings: those are looked up only after the key went to the focused widget and came back. Keys
        typed behind it would take the same route meanwhile, however much the first key changed.
        """
        if self._is_help_key(key):
            self.action_do("help")
            return True
        above = self.screen_stack[-1] if len(self.screen_stack) > 1 else None
        if isinstance(above, Overlay) and above.takes(key):
            return True
        if self.is_too_small and not self.main_view.focused_inside and set(key.aliases) & set(self.keys.of("quit")):
            self.action_do("quit")
            return True
        if self.list_has_keys:
            places: tuple[KeyContext, ...] = (KeyContext.LIST, KeyContext.EVERYWHERE)
        elif (place := self.session_pane.place) is not None:
            writing = place is KeyContext.FIND and key.is_printable
            places = (place,) if writing else (place, KeyContext.EVERYWHERE)
        elif key.is_printable or self.permissions.screen is not None or self.session_pane.is_in_terminal:
            return False
        else:
            places = (KeyContext.EVERYWHERE,)
        row = next((row for alias in key.aliases if (row := self.keys.action(alias, *places))), None)
        if row is not None:
            self.action_do(row.id)
        return row is not None

    def _is_help_key(self, key: events.Key) -> bool:
        """Whether *key* opens the help: not where it is text for an input box, or a terminal has the focus."""
        if not set(key.aliases) & set(self.keys.of("help")) or (
            len(self.screen_stack) == 1 and self.session_pane.is_in_terminal
        ):
            return False
        if isinstance(self.screen, Overlay) and self.screen.is_opening:
            return False
        focused = self.screen.focused
        return focused is None or not focused.check_consume_key(key.key, key.character)

    def _restore_focus(self) -> None:
        """Give a key a focused widget. A terminal that reports loss of focus may still send keys. Textual has then
        blurred every widget, and the key would do nothing."""
        if not self.app_focus:
            self.app_focus = True
        main_view, is_on_top = self.main_view, len(self.screen_stack) == 1
        if is_on_top and self.screen.focused is None and not main_view.focused_inside and not self.is_too_small:
            self.screen.set_focus(main_view.filter_bar.box or main_view.table)

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

    def _handle_exception(self, error: Exception) -> None:
        """Log only places and set `crash`: Textual's own report would print the values of variables."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        log_crash(error)
        name = type(error).__name__
        self.crash = self.crash or f"the dashboard crashed ({name}); the agents keep running. Run `kasmon` again."
        self.panic()

    # The fleet.

    def _take(self, fleet: Fleet) -> None:
        """Show *fleet*, and notify the user of changes."""
        before = self.main_view.table.sessions()
        change = difference(self.fleet, fleet)
        self.fleet = fleet
        inside = (
            self.main_view.preview.session if self.main_view.focused_inside else None
        )  # a notification would cover its question
        others = [session for session in change.changed if inside is None or session.id != inside.id]
        toasts_shown = toasts(before, others) if self.has_fleet else []
        if self.has_fleet:
            self.notifications.take(before, change)
        if not fleet.sessions and not self.has_fleet:
            self.run_worker(self._offer_agents(), group="welcome")
        self.has_fleet = True
        self.main_view.take(fleet, change)
        if self.main_view.focused_inside and self.main_view.preview.session is None:
            self.session_pane.leave()  # it was removed while open
        self.session_pane.learn()
        self.permissions.take(change.changed, change.gone)
        for gone in change.gone:
            self.session_pane.forget(gone)
        for above in (screen for screen in self.screen_stack if isinstance(screen, Overlay)):
            above.follow(fleet)
        self._show_toasts(toasts_shown)
        self.permissions.tell()
        self.offer_keys()

    async def _offer_agents(self) -> None:
        """The fleet is empty: show the agents that can be started here."""
        if self.gateway is not None:
            with contextlib.suppress(KasmonError):  # the list still shows the keys; a dialog reports what is wrong
                self.main_view.table.offer(await self.gateway.offers())

    def _show_toasts(self, shown: Iterable[Toast]) -> None:
        if not self.settings.toasts:
            return
        if any(isinstance(screen, Overlay) for screen in self.screen_stack):
            return  # no toast over a card or a dialog; the list shows the state, and the bell rang
        rises = self.permissions.may_rise  # a pending request opens a card in a moment
        now = self.clock.ticking()
        self._toasted_at = {toast: at for toast, at in self._toasted_at.items() if now - at < self.NOTIFICATION_TIMEOUT}
        for toast in shortened(toast for toast in shown if toast.state != "asking" or not rises):
            if toast in self._toasted_at:
                continue  # it is still on the screen: a request that was read anew has another id
            self._toasted_at[toast] = now
            self.notify(toast.text, title=toast.title, severity=toast.severity, markup=False)

    def say(self, text: str, *, severity: Literal["information", "warning", "error"] = "information") -> None:
        """Show *text* as a short notification; a hint may follow on a line of its own."""
        self.notify(clean_block(text), severity=severity, markup=False)

    def palette_sessions(self) -> Iterator[tuple[SessionId, str, str]]:
        """Yield id, name and state of every session, those that need attention first."""
        for session in self.main_view.table.shown():
            news_text = "".join(text for text, _ in news(session, self.clock.now()))
            yield session.id, session_label(session, session.id), f"{state_word(session)}  {news_text}"

    @property
    def is_palette_open(self) -> bool:
        return any(isinstance(screen, CommandPalette) for screen in self.screen_stack)

    def action_command_palette(self) -> None:
        if not self.is_palette_open:
            self.push_screen(CommandPalette(placeholder="Search commands and sessions", id="--command-palette"))

    # Keys.

    def on_key_context_changed(self, message: KeyContextChanged) -> None:
        message.stop()
        self.offer_keys()
        self.permissions.tell()

    @property
    def _key_context(self) -> KeyContext:
        """The context that has the keyboard on the main screen."""
        if self.main_view.focused_inside:
            return self.session_pane.place or (
                KeyContext.TERMINAL if self.session_pane.terminal is not None else KeyContext.PROMPT
            )
        return KeyContext.LIST if self.main_view.filter_bar.box is None else KeyContext.FILTER

    @property
    def _writes_code(self) -> bool:
        """Whether the open session's box takes code."""
        session = self.main_view.preview.session
        return session is not None and session.mode is Mode.INTERPRETER

    @property
    def help_places(self) -> tuple[KeyContext, ...]:
        """The contexts whose keys the help shows first; none for the list, whose keys come first anyway."""
        place = self._key_context
        if place is KeyContext.LIST:
            return ()
        inside = (KeyContext.CODE if self._writes_code else KeyContext.PROMPT, KeyContext.READING, KeyContext.QUEUE)
        return (place, *(other for other in inside if other is not place)) if place in inside else (place,)

    def offer_keys(self) -> None:
        """Show in the key bar the keys that count at the current focus, for the row under the cursor."""
        main_view, place = self.main_view, self._key_context
        session = None if main_view.table.selected is None else main_view.table.session(main_view.table.selected)
        wheres = {place, KeyContext.EVERYWHERE}
        if place is KeyContext.PROMPT and self._writes_code:
            wheres.add(KeyContext.CODE)
        rows = [row for row in ACTIONS if row.where in wheres and not (KeyContext.CODE in wheres and row.id in NO_CODE)]
        is_somewhere, has_sessions = bool(main_view.table.items), bool(self.fleet.sessions)
        rows = [row for row in rows if is_offered(row.offered, session, is_somewhere, has_sessions)]
        reads = place in (KeyContext.LIST, KeyContext.READING, KeyContext.QUEUE)
        shown = self.keys.shown if reads else self.keys.shown_while_writing
        main_view.key_bar.offered = offers(rows, [shown(row.id, self.utf8) for row in rows])
        main_view.table.keys, main_view.filter_bar.words.way_out = self.keys, self.keys.shown("show_all", self.utf8)


def _is_utf8(settings: DashboardSettings) -> bool:
    if settings.ascii != "auto":
        return settings.ascii == "no"
    return locale.getencoding().lower().replace("-", "") == "utf8" and not wants_ascii()
