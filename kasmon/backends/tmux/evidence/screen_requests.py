"""An agent's on-screen prompt as a request: opened when the judged state is asking, else withdrawn. Pure.

A request has choices only if a rule matches its menu completely. The judged state decides, not the text on the screen:
a menu that a better source contradicts is not shown. Any other prompt can only be answered in the terminal.
"""

import math
from typing import Final

import msgspec

from kasmon.detection.menus.answer import accepts_reason, decisions, find_free_text, options
from kasmon.detection.menus.choices import ScreenMenu
from kasmon.model.events import RequestOpened, RequestWithdrawn
from kasmon.model.evidence import StateVerdict
from kasmon.model.permission import NO_PLAN, Decision, Request, RequestId, RequestKind, SessionId, digest_of
from kasmon.model.session_state import SessionState
from kasmon.sanitize import first_line

GONE: Final = "it is no longer on the screen"
LONGEST_TITLE: Final = 200
BARE_S: Final = 0.8
"""How long a screen may take to draw its menu after another source reported that the agent asks, in seconds."""
LATE_S: Final = 3.0
"""How long after an answer sources other than the screen may still report that the agent asks, in seconds."""


class ScreenRequest:
    """The one request that may be on the screen of *session*."""

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self.open: Request | None = None
        """The last request opened and not withdrawn; its digest is `ScreenMenu.digest`, empty without a menu."""
        self.opened_at = -math.inf
        """When it was opened, in seconds since the epoch."""
        self.is_held = False
        """Whether an answer to it is being delivered; the screen counts again afterwards."""
        self._opened = 0
        self._answered_at = -math.inf
        self._bare_since: float | None = None
        self.due_at: float | None = None
        """When to read the screen again for a prompt without a known menu, in seconds since the epoch."""

    def apply_state(self, verdict: StateVerdict, at: float) -> list[RequestOpened | RequestWithdrawn]:
        """Process a possibly changed state and return the withdrawals."""
        if verdict.state is not SessionState.ASKING:
            self._bare_since = self.due_at = None
        return self._withdraw(at) if verdict.state is not SessionState.ASKING and not self.is_held else []

    def apply_screen(
        self, verdict: StateVerdict, menu: ScreenMenu | None, text: str, at: float
    ) -> list[RequestOpened | RequestWithdrawn]:
        """Process a screen reading: *menu* is on it, or no known one, and *text* is the question."""
        if self.is_held or verdict.state is not SessionState.ASKING:
            return self.apply_state(verdict, at)
        if self.is_early(menu, at):
            return self._withdraw(at)
        asks = self._from_menu(menu) if menu is not None else self._unknown(verdict, text)
        if self.open is not None and (self.open.digest, digest_of(self.open)) == (asks.digest, digest_of(asks)):
            return []
        withdrawn = self._withdraw(at)
        self._opened += 1
        self.open, self.opened_at = msgspec.structs.replace(asks, id=RequestId(f"screen-{self._opened}")), at
        return [*withdrawn, RequestOpened(at=at, request=self.open)]

    def forget(self, at: float) -> None:
        """Record that it was answered *at*: the next one seen is another request."""
        self.open, self._answered_at = None, at

    def is_early(self, menu: ScreenMenu | None, at: float) -> bool:
        """Whether the screen seen *at* may be incomplete: other sources are faster than a screen, or slower."""
        if menu is not None and menu.is_whole:
            self._bare_since = self.due_at = None
            return False
        self._bare_since = at if self._bare_since is None else self._bare_since
        due_at = self._bare_since + BARE_S
        if menu is None:
            due_at = max(due_at, self._answered_at + LATE_S)
        self.due_at = due_at if at < due_at else None
        return self.due_at is not None

    def _withdraw(self, at: float) -> list[RequestOpened | RequestWithdrawn]:
        if self.open is None:
            return []
        gone, self.open = self.open, None
        return [RequestWithdrawn(at=at, request=gone.id, why=GONE)]

    def _from_menu(self, menu: ScreenMenu) -> Request:
        choices, offered = decisions(menu), options(menu)
        always = menu.meaning(Decision.ALWAYS) if Decision.ALWAYS in choices else None
        return Request(
            id=RequestId(""),
            session=self._session,
            kind=menu.kind,
            title=first_line(menu.text)[:LONGEST_TITLE],
            shown=f"{NO_PLAN}\n\n{menu.text}" if menu.no_plan else menu.text,
            choices=choices,
            options=tuple(choice.label for choice in offered),
            option_notes=tuple(choice.note for choice in offered),
            many=menu.many and bool(offered),
            free_text=find_free_text(menu) is not None,
            takes_reason=accepts_reason(menu),
            rule=(menu.covers or always.label) if always else "",
            digest=menu.digest,
            answerable=bool(choices),
            may_be_cut=not menu.is_whole,
        )

    def _unknown(self, verdict: StateVerdict, text: str) -> Request:
        return Request(
            id=RequestId(""),
            session=self._session,
            kind=verdict.asking or RequestKind.QUESTION,
            title=first_line(text)[:LONGEST_TITLE],
            shown=text,
            answerable=False,
        )
