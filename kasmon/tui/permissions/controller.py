"""Shows the fleet's requests: a notice line counts them and names a key; a card opens by itself only if configured."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from textual.timer import Timer

from kasmon.errors import KasmonError, StaleRequestError
from kasmon.model.commands import Answer
from kasmon.model.permission import RequestId, SessionId
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.gateway.protocol import CardContext
from kasmon.tui.permissions.queue import QUIET_S, PermissionQueue, PermissionSnapshot, first_for
from kasmon.tui.plan_board.controller import PlanBoardController, plans_ask
from kasmon.tui.session_pane import PaneDashboard
from kasmon.tui.status_bars import BannerContent
from kasmon.tui.textual_ext.modal import Overlay

if TYPE_CHECKING:
    from kasmon.model.permission import Request
    from kasmon.tui.permissions.card.card import PermissionCard
    from kasmon.tui.permissions.card.screen import CardScreen
    from kasmon.tui.permissions.inbox.screen import InboxScreen

RISE_S: Final = 0.1
"""How often to check whether a pending request may open its card by itself, in seconds."""


class PermissionDashboard(PaneDashboard, Protocol):
    @property
    def plan_board(self) -> PlanBoardController: ...


class PermissionController:
    """Holds the fleet's requests, the card that shows them, and the notice line."""

    def __init__(self, app: PermissionDashboard) -> None:
        self.app = app
        self.queue = PermissionQueue()
        self._cards: dict[SessionId, CardContext] = {}
        self._changed: dict[SessionId, RequestId] = {}
        self._removed: set[SessionId] = set()
        """Removed sessions of which something may still be stored."""
        self._shown: CardScreen | InboxScreen | None = None
        self._here: SessionId | None = None
        """The session that the user had selected or opened when that opened."""
        self._listed: frozenset[SessionId] = frozenset()
        """The sessions in the list by then."""
        self._opens_since: float | None = None
        """When the key was pressed that opens the card as soon as its context is there; another key cancels that."""
        self._timer: Timer | None = None

    def start(self) -> None:
        """Start the checks; call it once the app runs."""
        self._timer = self.app.set_interval(RISE_S, self.consider, pause=True)
        self.check_soon()

    def update(
        self, changed: Iterable[Session], gone: Iterable[SessionId], cards: Mapping[SessionId, CardContext]
    ) -> None:
        """Update the requests of these sessions, and what their cards need."""
        changed, gone = tuple(changed), tuple(gone)
        self._removed = (self._removed | set(gone)) - {session.id for session in changed}
        has_new_cards = bool(cards.keys() - self._cards.keys())
        self._cards |= cards
        if self.queue.update(changed, gone) or has_new_cards:
            self._update_screen()
            self.check_soon()
        if has_new_cards and self._opens_since == self.app.last_key_at:
            self._opens_since = None
            self.open()
        self._drop_removed()

    def answer(self, session: SessionId, answer: Answer) -> None:
        """Send *answer*; if it fails, the request, or the one that replaced it, is pending again."""

        def mark_failed(error: KasmonError) -> bool:
            if isinstance(error, StaleRequestError):
                self._changed[session] = answer.request
            self.queue.mark_failed(answer.request)
            self._update_screen()
            self.check_soon()
            self.show_notice()
            return False

        self._changed.pop(session, None)
        self.queue.mark_sent(answer.request)
        self._update_screen()
        self.show_notice()
        self.app.run_operation(lambda operations: operations.answer(session, answer), failed=mark_failed)

    def open(self, first: "Request | None" = None) -> None:
        """Open the card over any other screen, with *first*, by default the request that `first_for` chooses."""
        app = self.app
        if self.screen is not None:
            return
        self._note_place()
        first = first or first_for(self.queue.waiting, self._here, self._listed)
        if first is None:
            app.say("No pending requests.")
        elif first.session not in self._cards:
            self._opens_since = app.last_key_at
        else:
            from kasmon.tui.permissions.card.screen import CardScreen  # not before the first frame

            asked = self._build_snapshot({first.session})
            self._shown = CardScreen(app.look, app.clock, app.keys, asked, first, self.answer)
            app.push_screen(self._shown)
            self.show_notice()

    def open_list(self) -> None:
        """Open the list of all pending requests, at the one on the card if there is a card."""
        from kasmon.tui.permissions.inbox.screen import InboxScreen  # not before the first frame

        app, screen, card = self.app, self.screen, self.card
        if isinstance(screen, InboxScreen):
            return
        self._note_place()
        chosen = card.request if card is not None else first_for(self.queue.waiting, self._here, self._listed)
        first = None if chosen is None else chosen.id
        self.close(())
        self._shown = InboxScreen(app.look, app.clock, app.keys, self._build_snapshot(), self.answer, first)
        app.push_screen(self._shown)
        self.show_notice()

    def close(self, put_off: Iterable[RequestId]) -> None:
        """Close the card or the list; the *put_off* stay pending, and do not open by themselves again."""
        if (screen := self.screen) is not None:
            self.queue.put_off(put_off)
            screen.dismiss()
            self.app.hold_still()
            self.app.call_later(self._drop_removed)
            self.app.call_later(self.show_notice)

    @property
    def screen(self) -> "CardScreen | InboxScreen | None":
        """The screen of the card or of the list, while it is open."""
        return self._shown if self._shown is not None and self._shown in self.app.screen_stack else None

    @property
    def card(self) -> "PermissionCard | None":
        return None if (screen := self.screen) is None else screen.card

    @property
    def may_rise(self) -> bool:
        """Whether a card may open by itself: the config allows it, and the list has the focus."""
        return self.app.settings.popup and self.app.list_has_keys

    def consider(self) -> None:
        """Open a card by itself if the user is idle; check again soon if that may become possible."""
        rising = self.queue.rising()
        if rising is None or not self.may_rise:
            if self._timer is not None:
                self._timer.pause()
            self.show_notice()
        elif self.app.quiet_for() >= QUIET_S and rising.session in self._cards:
            self.open(rising)

    def check_soon(self) -> None:
        """Check soon whether a request may open its card by itself, as something changed."""
        if self._timer is not None and self.queue.rising() is not None:
            self._timer.resume()
            self.app.call_later(self.consider)

    def show_notice(self) -> None:
        """Show the notice of pending requests, unless a card shows them or is about to."""
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
        if (terminal := app.session_pane.terminal) is not None:
            terminal.bar.waiting = waiting if terminal.is_live else 0
            notice = None if terminal.is_live else notice
        above = [each for each in app.screen_stack[1:] if isinstance(each, Overlay) and each.carries_notice]
        if above or not app.is_palette_open:  # under the palette nothing moves
            app.main_view.banner.notice = None if above else notice
        for screen in above:
            screen.notice(notice if screen is above[-1] else None)

    def _note_place(self) -> None:
        """Note which session the user is at: the topmost screen's, the open one, or the one under the list's cursor."""
        main_view = self.app.main_view
        self._listed = frozenset(session.id for session in main_view.table.shown())
        entered = main_view.preview.session if main_view.focused_inside else None
        self._here = main_view.table.selected if entered is None else entered.id
        for screen in self.app.screen_stack:
            if isinstance(screen, Overlay) and (session_id := screen.session_here) is not None:
                self._here = session_id or None

    def _build_snapshot(self, also: Iterable[SessionId] = ()) -> PermissionSnapshot:
        waiting = self.queue.waiting
        ids = {ask.session for ask in waiting} | set(also) | ({self._here} if self._here is not None else set())
        sessions = {id_: session for id_ in ids if (session := self.app.main_view.table.session(id_)) is not None}
        return PermissionSnapshot(
            waiting=waiting,
            sent=self.queue.in_transit,
            sessions=sessions,
            cards={id_: self._cards[id_] for id_ in ids if id_ in self._cards},
            here=self._here,
            listed=self._listed,
            changed=dict(self._changed),
        )

    def _update_screen(self) -> None:
        if (screen := self.screen) is not None:
            screen.update_requests(self._build_snapshot(screen.concerned))

    def _drop_removed(self) -> None:
        """Drop all data of removed sessions; what is still on the screen stays redacted until it is closed."""
        if not self._removed:
            return
        shown = frozenset() if (screen := self.screen) is None else screen.concerned
        for session in [each for each in self._removed if each not in shown]:
            self._cards.pop(session, None)
            self._changed.pop(session, None)
            self._removed.discard(session)
