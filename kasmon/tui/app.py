"""The dashboard's composition root: values come in from the world, wishes go out to it.

Nothing in here or below opens a file or a socket; `live.py` is the world of a real kasmon. What a key does stands in
`deeds.py`, which keys there are in `keys.py`.
"""

import asyncio
import locale
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, ClassVar, Final, Literal

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.filter import LineFilter, Monochrome
from textual.widget import Widget

from kasmon.clean import clean_line
from kasmon.errors import ConfigError, KasmonError
from kasmon.host.wire import Gone, Rows
from kasmon.model.command import Answer, Mode, Prompt
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.tui.asking import QUIET_S, Queue
from kasmon.tui.asks import AskCard, Asked
from kasmon.tui.bars import Notice, offers
from kasmon.tui.clock import Clock, RealClock
from kasmon.tui.deeds import Deeds
from kasmon.tui.desk import Desk
from kasmon.tui.dialog import Dialog
from kasmon.tui.feed import Transcripts
from kasmon.tui.focus import FocusView
from kasmon.tui.hygiene import keep_clean
from kasmon.tui.keyboard import CTRL_BRACKET, leave_key
from kasmon.tui.keys import ACTIONS, Keys, Where, chosen
from kasmon.tui.lines import Lines
from kasmon.tui.look import Look, session_label, state_name
from kasmon.tui.messages import (
    ActionWanted,
    CardLeft,
    CommandWanted,
    PromptEntered,
    SessionOpened,
    SessionSelected,
)
from kasmon.tui.notices import Toast, toasts
from kasmon.tui.order import difference
from kasmon.tui.safety import NoColours, NothingActs, log_crash
from kasmon.tui.session import SessionView
from kasmon.tui.shelf import Shelf
from kasmon.tui.theme import DEFAULT, PLAIN, ThemeFile, terminal_theme, textual_theme
from kasmon.tui.world import Settings, Tell, Wanted, World

RISE_S: Final = 0.1
"""How often it is looked whether a request may rise, while one waits for that."""
PREVIEW_S: Final = 0.05
"""A transcript is read when the cursor has rested so long."""
LATER_IMPORTS: Final = ("textual.widgets._text_area", "textual.widgets._input", "kasmon.tui.dialogs")
"""Heavy things that the first frame does not need."""


class Kasmon(App[None], inherit_bindings=False):
    """The screen over one fleet. Without a world it shows what it is given and wishes lead nowhere."""

    CSS_PATH = "kasmon.tcss"
    TITLE = "kasmon"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        lambda: import_module("kasmon.tui.palette").KasmonCommands
    }
    NOTIFICATION_TIMEOUT = 4
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(row.keys), f"app.do('{row.id}')", row.label, show=False, id=row.id)
        for row in ACTIONS
        if row.where in (Where.LIST, Where.EVERYWHERE)
    ]

    def __init__(
        self,
        fleet: Fleet | None = None,
        world: World | None = None,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        driver_class: type[Any] | None = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.animation_level = "none"
        self.world, self.clock = world, clock or RealClock()
        self.settings = settings or Settings()
        self.fleet = Fleet()
        self.keys = Keys()
        self.themes = Shelf()
        self.utf8 = _is_utf8(self.settings)
        self.set_class(not self.utf8, "-ascii")
        self.look = Look(self._theme_file(DEFAULT), utf8=self.utf8)
        self.queue = Queue()
        self.transcripts = Transcripts()
        self.deeds = Deeds(self)
        self.desk = Desk(self.look, self.clock, self._inside)
        self._filters: list[LineFilter] = [each for each in self._filters if not isinstance(each, Monochrome)]
        self._filters += [NothingActs(), *([NoColours()] if self.no_color else [])]
        self._first_fleet = fleet
        self._seen_fleet = False
        self._known_secrets: dict[SessionId, tuple[str, ...]] = {}
        self._drafts: dict[SessionId, str] = {}
        self._last_key_at = self.clock.ticking()
        self._rise_timer: Any = None
        self._leave_key = CTRL_BRACKET
        self._adopt(self.settings)

    # Life.

    def compose(self) -> ComposeResult:
        yield self.desk

    def on_mount(self) -> None:
        keep_clean(self)
        self.desk.preview_wanted = self.settings.preview
        if self._first_fleet is not None:
            self._take(self._first_fleet)
        self.desk.table.focus()
        self._offer_keys()
        self.set_interval(1.0, self._tick)
        self._rise_timer = self.set_interval(RISE_S, self._consider_rising, pause=True)
        self._rise_later()
        if self.world is not None:
            self.world.hear(self._heard)
            self.run_worker(self._follow_fleet(), group="fleet")
            self.run_worker(self._follow_settings(), group="settings")
        self.call_after_refresh(self._import_later)

    def _import_later(self) -> None:
        self.run_worker(lambda: [import_module(name) for name in LATER_IMPORTS], thread=True, group="imports")

    async def _follow_fleet(self) -> None:
        assert self.world is not None
        async for fleet in self.world.changes():
            self._take(fleet)

    async def _follow_settings(self) -> None:
        assert self.world is not None
        async for settings in self.world.settings():
            before = self.settings
            self._adopt(settings)
            for problem in settings.problems:
                if problem not in before.problems:
                    self.say(problem, severity="error")

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._last_key_at = self.desk.table.last_key_at = self.clock.ticking()
            self._rise_later()
        await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's own report would print the values of variables; ours is one line, and places in the log."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        log_crash(error)
        name = type(error).__name__
        self.panic(Text(f"kasmon: the dashboard crashed ({name}); the agents go on. Run `kasmon` again."))

    # The fleet.

    def _take(self, fleet: Fleet) -> None:
        """Show *fleet*, and say what changed in it."""
        before = self.desk.table.sessions()
        change = difference(self.fleet, fleet)
        self.fleet = fleet
        told = toasts(before, change.changed) if self._seen_fleet else []
        self._seen_fleet = True
        self.desk.take(fleet, change)
        inside = self.desk.preview.inside
        if self.desk.preview.session is not None and isinstance(inside, SessionView):
            inside.learn(self.desk.preview.session)
        if self.queue.take(change.changed, change.gone):
            self._learn_secrets(change.changed)
            self._tell_card()
            self._rise_later()
        for gone in change.gone:
            self.transcripts.drop(gone)
            self._drafts.pop(gone, None)
        self._toast(told)
        self._tell_banner()

    def _tick(self) -> None:
        self.desk.tick()

    def _toast(self, told: Iterable[Toast]) -> None:
        told = list(told)
        if told and self.settings.bell:
            self.bell()
        if not self.settings.toasts:
            return
        for toast in told[:3]:
            if toast.state != "asking" or not self._list_has_keys():
                self.notify(toast.text, title=toast.title, severity=toast.severity, markup=False)

    def say(self, text: str, *, severity: Literal["information", "warning", "error"] = "information") -> None:
        """A short word to the person."""
        self.notify(clean_line(text), severity=severity, markup=False)

    def palette_sessions(self) -> Iterator[tuple[SessionId, str, str]]:
        """Id, name and state of every session, those that need a person first."""
        for session in self.desk.table.shown():
            line = f"{state_name(session)}  {clean_line(session.last_line)}"
            yield session.id, session_label(session, session.id), line

    def last_diff(self, session: SessionId) -> str:
        """The last change that the session's transcript told of, as a unified diff."""
        told = self.transcripts.known(session)
        return told.diff if told else ""

    # Wishes.

    def action_do(self, action: str) -> None:
        """Do what the key table calls by this id."""
        getattr(self.deeds, action)()

    def on_action_wanted(self, message: ActionWanted) -> None:
        message.stop()
        self.action_do(message.action)

    def want(self, wanted: Wanted) -> None:
        """Have *wanted* done; its outcome is told in a word."""
        self.post_message(CommandWanted(wanted))

    def on_command_wanted(self, message: CommandWanted) -> None:
        message.stop()
        wanted = message.wanted
        if isinstance(wanted, Tell) and isinstance(wanted.wish, Answer):
            self.queue.sent(wanted.wish.request)
            self._tell_card()
            self._tell_banner()
        if self.world is not None:
            self.run_worker(self._carry_out(wanted, message.token), group="wishes")

    async def _carry_out(self, wanted: Wanted, token: int) -> None:
        assert self.world is not None
        try:
            word = await self.world.wish(wanted)
        except KasmonError as error:
            self._refused(wanted, token, error)
            return
        dialog = self._dialog(token)
        if dialog is not None:
            dialog.done(wanted)
        if word:
            self.say(word)

    def _refused(self, wanted: Wanted, token: int, error: KasmonError) -> None:
        if isinstance(wanted, Tell) and isinstance(wanted.wish, Answer):
            self.queue.failed(wanted.wish.request)
            self._tell_card()
            self._rise_later()
        dialog = self._dialog(token)
        if dialog is not None:
            dialog.refused(wanted, error)
        else:
            self.say(f"{error.message} {error.hint}", severity="error")

    def _dialog(self, token: int) -> Dialog | None:
        """The dialog that waits under *token*, if it is still there."""
        dialogs = (screen for screen in self.screen_stack if isinstance(screen, Dialog))
        return next((dialog for dialog in dialogs if dialog.token == token), None)

    # Requests.

    def show_requests(self) -> None:
        """Show the card with the first request that waits, over whatever is on the screen."""
        if self._card() is not None:
            return
        first = next((ask for ask in self.queue.waiting if not ask.later), None) or next(iter(self.queue.waiting), None)
        if first is None:
            self.say("No request waits.")
        elif first.session in self._known_secrets:
            self.push_screen(AskCard(self.look, self.clock, self.keys, self._asked(), first))
            self._tell_banner()

    def on_card_left(self, message: CardLeft) -> None:
        message.stop()
        card = self._card()
        if card is None:
            return
        self.queue.put_off(message.put_off)
        card.dismiss()
        self._last_key_at = self.desk.table.last_key_at = self.clock.ticking()
        self.call_later(self._tell_banner)

    def _consider_rising(self) -> None:
        """Let a request rise if nobody is doing anything else; look again soon if one could otherwise."""
        rising = self.queue.rising()
        if rising is None or not self._list_has_keys():
            self._rise_timer.pause()
            self._tell_banner()
        elif self.clock.ticking() - self._last_key_at >= QUIET_S and rising.session in self._known_secrets:
            self._rise_timer.pause()
            self.push_screen(AskCard(self.look, self.clock, self.keys, self._asked(), rising))
            self._tell_banner()

    def _rise_later(self) -> None:
        if self._rise_timer is not None and self.queue.rising() is not None:
            self._rise_timer.resume()

    def _list_has_keys(self) -> bool:
        return len(self.screen_stack) == 1 and self.desk.table.has_focus and not self.desk.has_class("-too-small")

    def _card(self) -> AskCard | None:
        return next((each for each in self.screen_stack if isinstance(each, AskCard)), None)

    def _asked(self) -> Asked:
        waiting = self.queue.waiting
        card = self._card()
        ids = {ask.session for ask in waiting} | ({card.request.session} if card else set())
        sessions = {id_: session for id_ in ids if (session := self.desk.table.session(id_)) is not None}
        return Asked(waiting=waiting, sessions=sessions, known={id_: self._known_secrets.get(id_, ()) for id_ in ids})

    def _tell_card(self) -> None:
        if (card := self._card()) is not None:
            card.learn(self._asked())

    def _learn_secrets(self, changed: Iterable[Session]) -> None:
        """A card may be shown once it is known what must not stand on it."""
        new = [session.id for session in changed if session.asks and session.id not in self._known_secrets]
        if self.world is None:
            self._known_secrets |= dict.fromkeys(new, ())
        elif new:
            self.run_worker(self._ask_secrets(new), group="secrets")

    async def _ask_secrets(self, sessions: Iterable[SessionId]) -> None:
        assert self.world is not None
        for session in sessions:
            self._known_secrets[session] = tuple(await self.world.secrets(session))
        self._tell_card()

    def _tell_banner(self) -> None:
        """Say that requests wait, wherever no card says it."""
        waiting = len(self.queue.waiting)
        will_rise = self.queue.rising() is not None and self._list_has_keys()
        notice = None
        if waiting and self._card() is None and not will_rise:
            many = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
            key = self.keys.shown("inbox", self.utf8) if self._list_has_keys() else "F2"
            notice = Notice(many, "state-asking", key, "shows it" if waiting == 1 else "shows them", "inbox")
        elif self.fleet.read_only:
            notice = Notice(f"Nothing can be written down: {clean_line(self.fleet.read_only)}", "bad")
        inside = self.desk.preview.inside
        if isinstance(inside, FocusView):
            inside.waiting = waiting if inside.is_live else 0
            notice = None if inside.is_live else notice
        above = [screen for screen in self.screen_stack[1:] if isinstance(screen, Dialog)]
        self.desk.banner.notice = None if above else notice
        for dialog in above:
            dialog.notice(notice)

    # Inside a session.

    def _inside(self, session: Session) -> Widget | None:
        """The widget that shows what this session shows."""
        if session.mode is Mode.TMUX:
            link = self.world.terminals if self.world is not None else None
            if link is None:
                note = Lines(self.look, "background")
                note.say((), ((" Live terminals need tmux; this one cannot be shown.", "soft"),))
                return note
            return FocusView(link, session.id, self._leave_key)
        view = SessionView(session, self.transcripts.of(session.id).transcript, self.look, self.keys)
        if self.world is not None:
            self.run_worker(self._follow_transcript(session.id, view), group="transcript", exclusive=True)
        return view

    async def _follow_transcript(self, session: SessionId, view: SessionView) -> None:
        assert self.world is not None
        await asyncio.sleep(PREVIEW_S)
        told = self.transcripts.of(session)
        async for heard in self.world.transcript(session, told.cursor):
            told.take(heard)
            view.changed()

    def _heard(self, push: Rows | Gone) -> None:
        """A host told something of a terminal."""
        inside = self.desk.preview.inside
        if isinstance(inside, FocusView) and inside.session == push.session:
            if isinstance(push, Rows):
                inside.show(push)
            else:
                inside.lost(clean_line(push.why))

    def enter(self, wanted: SessionId) -> None:
        """Give the keyboard to this session."""
        session = self.desk.table.session(wanted)
        if session is None:
            return
        self.desk.enter(wanted)
        inside = self.desk.preview.inside
        if isinstance(inside, FocusView):
            inside.label = session_label(session, wanted)
            self.call_after_refresh(inside.enter)
        elif isinstance(inside, SessionView):
            inside.enter(self._drafts.pop(wanted, ""))
        else:
            self.leave()
            return
        self._offer_keys()
        self.call_after_refresh(self._tell_banner)

    def leave(self) -> None:
        """The keyboard is the list's again."""
        inside = self.desk.preview.inside
        if isinstance(inside, SessionView) and (draft := inside.leave()):
            self._drafts[inside.session.id] = draft
        elif isinstance(inside, FocusView):
            inside.leave()
        self._last_key_at = self.desk.table.last_key_at = self.clock.ticking()
        self.desk.leave()
        self._offer_keys()
        self._rise_later()
        self._tell_banner()

    def on_focus_view_left(self, message: FocusView.Left) -> None:
        message.stop()
        if self.desk.focused_inside:
            self.leave()

    def on_focus_view_waiting_clicked(self, message: FocusView.WaitingClicked) -> None:
        message.stop()
        self.show_requests()

    def on_session_selected(self, message: SessionSelected) -> None:
        message.stop()
        self.desk.show_selected()

    def on_session_opened(self, message: SessionOpened) -> None:
        message.stop()
        if (card := self._card()) is not None:
            card.dismiss()
        self.call_later(self.enter, message.session)

    def on_prompt_entered(self, message: PromptEntered) -> None:
        message.stop()
        self.want(Tell(session=message.session, wish=Prompt(text=message.text)))

    def attach(self, session: SessionId) -> None:
        """Leave the screen to the session's real terminal, and come back."""
        if self.world is not None:
            self.run_worker(self._sit_down(session), group="attach", exclusive=True)

    async def _sit_down(self, session: SessionId) -> None:
        from kasmon.tui.attach import attached

        assert self.world is not None
        try:
            argv = await self.world.attach_argv(session)
            await attached(self, argv)
        except KasmonError as error:
            self.say(f"{error.message} {error.hint}", severity="error")
        self._last_key_at = self.desk.table.last_key_at = self.clock.ticking()

    # Keys and themes.

    def _adopt(self, settings: Settings) -> None:
        """Take *settings* as far as they can be used; what cannot stays as it was."""
        self.settings = settings
        try:
            self.keys = chosen(settings.keys, settings.config_path or "config")
            self._leave_key = leave_key(self.keys.chosen.get("leave_focus", ("ctrl+]",))[0])
        except (ConfigError, ValueError) as error:
            self._problem(str(error))
        self.set_keymap({row.id: ",".join(self.keys.of(row.id)) for row in ACTIONS if row.id in self.keys.chosen})
        self.themes.put(settings.theme_files)
        for problem in self.themes.problems:
            self._problem(problem)
        wanted = PLAIN if self.no_color else settings.theme or DEFAULT
        if self.themes.get(wanted) is None:
            self._problem(f"there is no theme {wanted!r}; known are {', '.join(name for name, _ in self.themes.all())}")
            wanted = self.theme if self.theme in dict(self.themes.all()) else DEFAULT
        self.show_theme(wanted)
        if self.is_running:
            self._offer_keys()

    def _problem(self, problem: str) -> None:
        if self.is_running:
            self.say(problem, severity="error")
        else:
            self.call_later(self.say, problem, severity="error")

    def show_theme(self, name: str) -> None:
        """Draw everything with this theme from now on."""
        theme = self._theme_file(name)
        self.register_theme(textual_theme(name, theme))
        self.look = Look(theme, utf8=self.utf8)
        self.ansi_theme_dark = self.ansi_theme_light = terminal_theme(theme)
        if self.theme == name:
            self.refresh_css(animate=False)
        else:
            self.theme = name
        self.desk.dress(self.look)
        inside = self.desk.preview.inside
        if isinstance(inside, SessionView):
            inside.dress(self.look)
        for screen in self.screen_stack[1:] if self.is_running else ():
            if isinstance(screen, Dialog | AskCard):
                screen.dress(self.look)

    def _theme_file(self, name: str) -> ThemeFile:
        theme = self.themes.get(name) or self.themes.get(DEFAULT)
        assert theme is not None
        return theme

    def _offer_keys(self) -> None:
        """Show the keys that matter where the keyboard is now."""
        inside = self.desk.preview.inside
        place = Where.LIST
        if self.desk.focused_inside:
            place = Where.TERMINAL if isinstance(inside, FocusView) else Where.PROMPT
        places = (place, Where.EVERYWHERE) if place is Where.LIST else (place,)
        rows = [row for row in ACTIONS if row.footer and row.where in places]
        self.desk.key_bar.offered = offers(rows, [self.keys.shown(row.id, self.utf8) for row in rows])


def _is_utf8(settings: Settings) -> bool:
    if settings.ascii != "auto":
        return settings.ascii == "no"
    return locale.getpreferredencoding(False).lower().replace("-", "") == "utf8"
