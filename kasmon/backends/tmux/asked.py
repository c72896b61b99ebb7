"""What an agent asks on its screen, as requests: opened when the judged state says so, else withdrawn. Pure.

A request has choices only where a rule knows the menu that stands there, whole. What a better source contradicts is
not even shown: the state decides, not the words on the screen. Everything else that asks can only be gone to.
"""

from typing import Final

import msgspec

from kasmon.model.event import RequestOpened, RequestWithdrawn
from kasmon.model.evidence import Verdict
from kasmon.model.permission import AskKind, Decision, Request, RequestId, SessionId, digest_of
from kasmon.model.state import SessionState
from kasmon.screens.choice import REFUSALS, Menu

GONE: Final = "it is not on its screen any more"
LONGEST_TITLE: Final = 200
CARRIES: Final = False
"""Whether an answer is carried to a screen; it is not yet, so a person goes there."""
TAKEN: Final = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.CANCEL)
"""What a menu may offer beside choosing, in the order in which it is shown."""


class Asked:
    """The one request that may stand on the screen of *session*."""

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self.open: Request | None = None
        """The request that was opened last and not withdrawn; its digest is `Menu.digest`, empty without a menu."""
        self._opened = 0

    def judged(self, verdict: Verdict, at: float) -> list[RequestOpened | RequestWithdrawn]:
        """The state may have changed; what that withdraws."""
        return self._withdrawn(at) if verdict.state is not SessionState.ASKING else []

    def seen(self, verdict: Verdict, menu: Menu | None, text: str, at: float) -> list[RequestOpened | RequestWithdrawn]:
        """A look was taken: *menu* stands there, or none that is known, and *text* is what is asked."""
        if verdict.state is not SessionState.ASKING:
            return self._withdrawn(at)
        asks = self._from_menu(menu) if menu is not None else self._unknown(verdict, text)
        if self.open is not None and (self.open.digest, digest_of(self.open)) == (asks.digest, digest_of(asks)):
            return []
        withdrawn = self._withdrawn(at)
        self._opened += 1
        self.open = _named(asks, self._opened)
        return [*withdrawn, RequestOpened(at=at, request=self.open)]

    def forget(self) -> None:
        """It was answered, or nobody waits for it: what is seen next is another one."""
        self.open = None

    def _withdrawn(self, at: float) -> list[RequestOpened | RequestWithdrawn]:
        if self.open is None:
            return []
        gone, self.open = self.open, None
        return [RequestWithdrawn(at=at, request=gone.id, why=GONE)]

    def _from_menu(self, menu: Menu) -> Request:
        choices = tuple(decision for decision in TAKEN if _can_be_taken(menu, decision))
        options = tuple(choice for choice in menu.choices if choice.decision is Decision.CHOOSE)
        if not (menu.hears and menu.is_whole):
            options = ()
        always = menu.meaning(Decision.ALWAYS) if Decision.ALWAYS in choices else None
        return Request(
            id=RequestId(""),
            session=self._session,
            kind=menu.kind,
            title=_first_line(menu.text),
            shown=menu.text,
            choices=(*((Decision.CHOOSE,) if options else ()), *choices),
            options=tuple(choice.label for choice in options),
            option_notes=tuple(choice.note for choice in options),
            many=menu.many,
            free_text=any(choice.free_text for choice in options),
            rule=always.label if always else "",
            digest=menu.digest,
            answerable=CARRIES and bool(options or choices),
        )

    def _unknown(self, verdict: Verdict, text: str) -> Request:
        return Request(
            id=RequestId(""),
            session=self._session,
            kind=verdict.asking or AskKind.QUESTION,
            title=_first_line(text),
            shown=text,
            answerable=False,
        )


def _can_be_taken(menu: Menu, decision: Decision) -> bool:
    """Whether *menu* takes *decision*: by a key, or by the arrows where its choice has none."""
    if decision in menu.keys:
        return True
    choice = menu.meaning(decision)
    is_safe = menu.hears and (menu.is_whole or decision in REFUSALS)
    return choice is not None and not choice.key and is_safe and menu.steps(choice) is not None


def _named(request: Request, number: int) -> Request:
    return msgspec.structs.replace(request, id=RequestId(f"screen-{number}"))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:LONGEST_TITLE]
