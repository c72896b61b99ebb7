"""Links that each open the page of one request for a while, and answer it once.

`signed_records` keeps them: no file contains a token.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Literal

import msgspec

from kasmon.errors import NotFoundError
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.paths import Paths
from kasmon.store.signed_records import SignedRecords, new_id

MAX_LINKS: Final = 500
"""The most records; then the oldest is dropped, those first that open nothing any more."""
KEPT_S: Final = 86_400.0
"""How long a record is kept after its link expired, in seconds, so that its page can say so."""
SKEW_S: Final = 60.0
"""A link from further in the future than this, in seconds, opens nothing: the clock was set back."""
PURPOSE: Final = "the page of one request, v1"
Form = Literal["consent", "other"]
"""Forms of the page: those that allow what is asked for, and all others."""


class LinkState(StrEnum):
    OPEN = "open"
    USED = "used"
    REVOKED = "revoked"
    EXPIRED = "expired"


class RequestLink(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a link. Times are seconds since the epoch."""

    id: str
    request: RequestId
    session: SessionId
    digest: str
    """Of the request; an answer to another text is refused."""
    created_at: float
    expires_at: float
    used_at: float | None = None
    decision: Decision | None = None
    """The answer that it was used for."""
    revoked_at: float | None = None
    login: str = ""
    """The id of the login whose browser opened it; empty for a link that was sent."""

    @property
    def signed(self) -> tuple[object, ...]:
        return (self.id, self.request, self.session, self.digest, self.created_at, self.expires_at, self.login)

    def state(self, now: float) -> LinkState:
        """Return whether it can answer its request at *now*, or why not."""
        if self.revoked_at is not None:
            return LinkState.REVOKED
        if self.used_at is not None:
            return LinkState.USED
        is_valid = self.created_at - SKEW_S <= now < self.expires_at
        return LinkState.OPEN if is_valid else LinkState.EXPIRED


class RequestLinks:
    """The links of one kasmon. Every call may be made from any process; each looks at the files again.

    All raise `UnavailableError` if others can read the key, or it cannot be written.
    """

    def __init__(self, paths: Paths) -> None:
        self._records = SignedRecords(paths.request_links, paths.request_links_key, RequestLink)
        self.list_all = self._records.list_all

    def create(self, request: Request, minutes: float, now: float, login: str = "") -> str:
        """Return the token of a new link to *request* that expires *minutes* after *now*.

        *login*: as `RequestLink.login`; if that opened the request before, its link is returned while it is fresh.
        """
        for known in self.list_all() if login else ():
            is_same = (known.login, known.request, known.digest) == (login, request.id, request.digest)
            if is_same and known.state(now) is LinkState.OPEN and known.expires_at - now > minutes * 30:
                return self._records.token(known, PURPOSE)
        link = RequestLink(
            id=new_id(),
            request=request.id,
            session=request.session,
            digest=request.digest,
            created_at=now,
            expires_at=now + minutes * 60,
            login=login,
        )
        undone = f"no link to request {request.id!r} was created"
        self._records.add(link, lambda links: _without_oldest(links, now), undone)
        return self._records.token(link, PURPOSE)

    def find(self, token: str) -> RequestLink | None:
        """Return the link of *token*, whatever its state; None if its signature is wrong or its record is gone."""
        return self._records.find(token, PURPOSE)

    def form_value(self, link: RequestLink, form: Form) -> str:
        """Return what a *form* of the link's page has to send back: only that page contains it."""
        return self._records.sign(link, f"{PURPOSE}: {form}")

    def use(self, link_id: str, decision: Decision, now: float) -> bool:
        """Record that the link answers its request with *decision*; False if it is not open any more.

        The record is on disk when this returns, so no crash makes the link work twice.

        Raises:
            OSError: if it cannot be written; the link stays open.
        """
        return bool(
            self._records.change(
                lambda link: link.id == link_id and link.state(now) is LinkState.OPEN,
                lambda link: msgspec.structs.replace(link, used_at=now, decision=decision),
            )
        )

    def revoke(self, now: float, link_id: str = "") -> tuple[RequestLink, ...]:
        """Revoke the link with this id, or all open ones, and return those that were open.

        Raises:
            NotFoundError: if no link has the id.
            OSError: if it cannot be written; nothing was revoked.
        """
        if link_id and all(link.id != link_id for link in self.list_all()):
            raise NotFoundError(f"there is no link {link_id!r}.", hint="See `kasmon web links`.")
        return self._records.change(
            lambda link: link_id in ("", link.id) and link.state(now) is LinkState.OPEN,
            lambda link: msgspec.structs.replace(link, revoked_at=now),
        )


def _without_oldest(links: Sequence[RequestLink], now: float) -> list[RequestLink]:
    """Return *links* without old ones, so that there is space for one more."""
    kept = [link for link in links if now < link.expires_at + KEPT_S]
    over = max(0, len(kept) + 1 - MAX_LINKS)
    order = sorted(kept, key=lambda link: (link.state(now) is LinkState.OPEN, link.created_at))
    dropped = {link.id for link in order[:over]}
    return [link for link in kept if link.id not in dropped]
