"""The requests of the fleet before a person: a line counts them and names a key; a card opens by itself only if set."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from textual.timer import Timer

from kasmon.errors import KasmonError, StaleRequestError
from kasmon.model.permission import RequestId, SessionId
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.permissions.queue import QUIET_S, PermissionQueue, PermissionSnapshot, first_for
from kasmon.tui.plan_board.controller import plans_ask
from kasmon.tui.status_bars import BannerContent
from kasmon.tui.textual_ext.modal import Overlay

if TYPE_CHECKING:
    from kasmon.model.permission import Request
    from kasmon.tui.app import Kasmon
    from kasmon.tui.permissions.card import PermissionCard
    from kasmon.tui.permissions.card_screen import CardScreen
    from kasmon.tui.permissions.inbox_screen import InboxScreen

RISE_S: Final = 0.1
"""How often it is looked whether a request may rise, while one waits for that."""


class PermissionController:
    """The requests of the fleet, the card that shows them, and the line that says that they wait."""

    def __init__(self, app: "Kasmon") -> None:
        self.app = app
        self.queue = PermissionQueue()
        self._known_secrets: dict[SessionId, tuple[str, ...]] = {}
        self._projects: dict[SessionId, str] = {}
        self._changed: dict[SessionId, RequestId] = {}
        self._gone: set[SessionId] = set()
        """Who is not there any more, while something of them may still be kept."""
        self._shown: CardScreen | InboxScreen | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to look; call it once the app runs."""
        self._timer = self.app.set_interval(RISE_S, self.consider, pause=True)
        self.look_soon()

    def take(self, changed: Iterable[Session], gone: Iterable[SessionId]) -> None:
        """Learn what these sessions ask now."""
        changed, gone = tuple(changed), tuple(gone)
        self._gone = (self._gone | set(gone)) - {session.id for session in changed}
        if self.queue.take(changed, gone):
            self._learn_secrets(changed)
            self._tell_screen()
            self.look_soon()
        self._forget()

    def sent(self, session: SessionId, request: RequestId) -> None:
        """An answer is on its way."""
        self._changed.pop(session, None)
        self.queue.sent(request)
        self._tell_screen()
        self.tell()

    def failed(self, session: SessionId, request: RequestId, error: KasmonError) -> None:
        """The answer did not arrive: it waits again, or what stands in its place."""
        if isinstance(error, StaleRequestError):
            self._changed[session] = request
        self.queue.failed(request)
        self._tell_screen()
        self.look_soon()
        self.tell()

    def open(self) -> None:
        """Show the card over whatever is on the screen, with the request that `first_for` chooses."""
        if self.screen is not None:
            return
        here, listed = self._here(), [session.id for session in self.app.main_view.table.shown()]
        first = first_for(self.queue.waiting, here, listed)
        if first is None:
            self.app.say("No pending requests.")
        elif first.session in self._known_secrets:
            self._show(first)

    def open_list(self) -> None:
        """Show all that wait, at the request that is on the card if one is."""
        from kasmon.tui.permissions.inbox_screen import InboxScreen  # not before the first frame

        app, screen, card = self.app, self.screen, self.card
        if isinstance(screen, InboxScreen):
            return
        chosen = card.request if card is not None else first_for(self.queue.waiting, self._here())
        first = None if chosen is None else chosen.id
        self.close(())
        self._shown = InboxScreen(app.look, app.clock, app.keys, self._asked(), first)
        app.push_screen(self._shown)
        self.tell()

    def close(self, put_off: Iterable[RequestId]) -> None:
        """Take the card or the list away; *put_off* wait on, and do not rise by themselves again."""
        if (screen := self.screen) is not None:
            self.queue.put_off(put_off)
            screen.dismiss()
            self.app.hold_still()
            self.app.call_later(self._forget)
            self.app.call_later(self.tell)

    @property
    def screen(self) -> "CardScreen | InboxScreen | None":
        """The card's screen or the list's, while it is there."""
        return self._shown if self._shown is not None and self._shown in self.app.screen_stack else None

    @property
    def card(self) -> "PermissionCard | None":
        """The card, while it is on the screen."""
        return None if (screen := self.screen) is None else screen.card

    @property
    def may_rise(self) -> bool:
        """Whether a card may open by itself: the config allows it, and the list has the keyboard."""
        return self.app.settings.popup and self.app.list_has_keys

    def consider(self) -> None:
        """Let a request rise if nobody is doing anything else; look again soon if one could otherwise."""
        rising = self.queue.rising()
        if rising is None or not self.may_rise:
            if self._timer is not None:
                self._timer.pause()
            self.tell()
        elif self.app.quiet_for() >= QUIET_S and rising.session in self._known_secrets:
            self._show(rising)

    def look_soon(self) -> None:
        """Something changed that a request may rise by."""
        if self._timer is not None and self.queue.rising() is not None:
            self._timer.resume()
            self.app.call_later(self.consider)

    def tell(self) -> None:
        """Say that requests wait, wherever no card says it or is about to: whenever one is, it is looked for."""
        app = self.app
        waiting = len(self.queue.waiting)
        will_rise = self.queue.rising() is not None and self.may_rise
        if will_rise and self._timer is not None:
            self._timer.resume()
        notice: BannerContent | None = None
        if waiting and self.screen is None and not will_rise:
            many = "1 pending request" if waiting == 1 else f"{waiting} pending requests"
            shown = app.keys.shown if app.list_has_keys else app.keys.shown_while_writing
            key = shown("inbox", app.utf8)
            label = "review"
            if plans := len(app.plan_board.asking):
                many, label = f"{many} · {plans_ask(plans)}", f"{label} · {app.plan_board.key} board"
            notice = BannerContent(many, "state-asking", key, label, "inbox")
        elif app.fleet.read_only:
            notice = BannerContent(f"kasmon cannot save anything: {clean_line(app.fleet.read_only)}", "bad")
        else:
            notice = app.plan_board.notice()
        if (inside := app.session_pane.terminal) is not None:
            inside.waiting = waiting if inside.is_live else 0
            notice = None if inside.is_live else notice
        above = [each for each in app.screen_stack[1:] if isinstance(each, Overlay) and each.carries_notice]
        if above or not app.is_palette_open:  # under the palette nothing moves
            app.main_view.banner.notice = None if above else notice
        for screen in above:
            screen.notice(notice if screen is above[-1] else None)

    def _show(self, first: "Request") -> None:
        from kasmon.tui.permissions.card_screen import CardScreen  # not before the first frame

        app = self.app
        here = self._here()
        session = None if here is None else app.main_view.table.session(here)
        self._shown = CardScreen(app.look, app.clock, app.keys, self._asked({first.session}), first, session)
        app.push_screen(self._shown)
        self.tell()

    def _here(self) -> SessionId | None:
        """The session that the person has entered, else the one that the list's cursor is on."""
        main_view = self.app.main_view
        entered = main_view.preview.session if main_view.focused_inside else None
        return main_view.table.selected if entered is None else entered.id

    def _asked(self, also: Iterable[SessionId] = ()) -> PermissionSnapshot:
        """What waits now, and of whom; *also* tells of these sessions."""
        waiting = self.queue.waiting
        ids = {ask.session for ask in waiting} | set(also)
        sessions = {id_: session for id_ in ids if (session := self.app.main_view.table.session(id_)) is not None}
        known = {id_: self._known_secrets[id_] for id_ in ids if id_ in self._known_secrets}
        sent = self.queue.on_the_way
        return PermissionSnapshot(
            waiting=waiting,
            sent=sent,
            sessions=sessions,
            known=known,
            projects=self._projects,
            changed=dict(self._changed),
        )

    def _tell_screen(self) -> None:
        if (screen := self.screen) is not None:
            screen.learn(self._asked(screen.concerned))

    def _learn_secrets(self, changed: Iterable[Session]) -> None:
        """A card may be shown once it is known what must not stand on it, and how far its rules would reach."""
        new = [session.id for session in changed if session.asks and session.id not in self._known_secrets]
        if self.app.gateway is None:
            self._known_secrets |= dict.fromkeys(new, ())
        elif new:
            self.app.run_worker(self._ask_secrets(new), group="secrets")

    async def _ask_secrets(self, sessions: Collection[SessionId]) -> None:
        assert self.app.gateway is not None
        for session in sessions:
            self._projects[session] = await self.app.gateway.project(session)
            self._known_secrets[session] = tuple(await self.app.gateway.secrets(session))
        self._gone |= {session for session in sessions if self.app.main_view.table.session(session) is None}
        self._tell_screen()
        self._forget()
        self.look_soon()

    def _forget(self) -> None:
        """Keep nothing of who is gone; what is on the screen of them stays hidden as long as it is there."""
        if not self._gone:
            return
        shown = frozenset() if (screen := self.screen) is None else screen.concerned
        for session in [each for each in self._gone if each not in shown]:
            for kept in (self._known_secrets, self._projects, self._changed):
                kept.pop(session, None)
            self._gone.discard(session)
