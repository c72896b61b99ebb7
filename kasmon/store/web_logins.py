"""Browsers that are logged in to the list of sessions of `kasmon web`, and the links that log one in, once.

A record begins as a link. A form of the link's page uses it up, and makes it the login of that browser.
`signed_records` keeps them: no file contains a link or a cookie that works.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from kasmon.errors import NotFoundError
from kasmon.paths import Paths
from kasmon.store.request_links import KEPT_S, SKEW_S
from kasmon.store.signed_records import SignedRecords, new_id

MAX_LOGINS: Final = 100
"""The most records; then the oldest is dropped, those first that are over."""
LINK_MINUTES: Final = 10.0
"""How long a link that logs in works, in minutes."""
PLACE_LENGTH: Final = 12
LINK: Final = "a link that logs in, v1"
COOKIE: Final = "the cookie of a login, v1"
PLACE: Final = "the path of the list, v1"


class LoginState(StrEnum):
    UNUSED = "unused"
    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"


class WebLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a link that logs in, and of the login that it became. Times are seconds since the epoch."""

    id: str
    created_at: float
    expires_at: float
    """Of the link; of the login since it was used."""
    used_at: float | None = None
    browser: str = ""
    """What the browser that used it calls itself; clean."""
    revoked_at: float | None = None
    passkey: str = ""
    """The id of the passkey that logged in; empty for a link."""

    @property
    def signed(self) -> tuple[object, ...]:
        return (self.id, self.created_at, self.expires_at, self.used_at)

    def state(self, now: float) -> LoginState:
        """Return what it is good for at *now*."""
        if self.revoked_at is not None:
            return LoginState.REVOKED
        if not (self.used_at or self.created_at) - SKEW_S <= now < self.expires_at:
            return LoginState.EXPIRED
        return LoginState.UNUSED if self.used_at is None else LoginState.ACTIVE


class WebLogins:
    """The logins of one kasmon. Every call may be made from any process; each looks at the files again.

    All raise `UnavailableError` if others can read the key, or it cannot be written.
    """

    def __init__(self, paths: Paths) -> None:
        self._records = SignedRecords(paths.web_logins, paths.request_links_key, WebLogin)
        self.list_all = self._records.list_all

    @property
    def place(self) -> str:
        """The part of every path of the list that only logged-in browsers know; the same until the key is removed.

        Cookies ignore ports, so every other server on this machine would receive a cookie with a known path.
        """
        return self._records.sign_text(PLACE)[:PLACE_LENGTH]

    def create(self, now: float) -> str:
        """Return the token of a new link that logs one browser in."""
        login = WebLogin(id=new_id(), created_at=now, expires_at=now + LINK_MINUTES * 60)
        self._records.add(login, lambda logins: _without_oldest(logins, now), "no link was created")
        return self._records.token(login, LINK)

    def find_link(self, token: str) -> WebLogin | None:
        """Return the link of *token* if it was not used; None if there is none, or its signature is wrong."""
        return self._records.find(token, LINK)

    def find(self, cookie: str, now: float) -> WebLogin | None:
        """Return the active login of *cookie*; None without one."""
        login = self._records.find(cookie, COOKIE)
        return login if login is not None and login.state(now) is LoginState.ACTIVE else None

    def is_active(self, login_id: str, now: float) -> bool:
        """Return whether the login with this id still is."""
        return any(each.id == login_id and each.state(now) is LoginState.ACTIVE for each in self.list_all())

    def form_value(self, login: WebLogin) -> str:
        """Return what every form has to send back: only pages of this link, or this login, contain it."""
        return self._records.sign(login, f"{LINK}: a form")

    def use(self, link_id: str, browser: str, days: float, now: float) -> str:
        """Log *browser* in for *days* by the link with this id; return its cookie, empty if the link is used up.

        The record is on disk when this returns, so no crash makes the link work twice.

        Raises:
            OSError: if it cannot be written; the link stays unused.
        """
        changed = self._records.change(
            lambda login: login.id == link_id and login.state(now) is LoginState.UNUSED,
            lambda login: msgspec.structs.replace(login, used_at=now, expires_at=now + days * 86_400, browser=browser),
        )
        return self._records.token(changed[0], COOKIE) if changed else ""

    def use_passkey(self, passkey_id: str, browser: str, days: float, now: float) -> str:
        """Log *browser* in for *days* by a passkey that was checked; return its cookie.

        Raises:
            UnavailableError: if it cannot be recorded.
        """
        until = now + days * 86_400
        login = WebLogin(
            id=new_id(), created_at=now, expires_at=until, used_at=now, browser=browser, passkey=passkey_id
        )
        self._records.add(login, lambda logins: _without_oldest(logins, now), "no login was recorded")
        return self._records.token(login, COOKIE)

    def revoke(self, now: float, login_id: str = "", *, passkey: str = "") -> tuple[WebLogin, ...]:
        """Revoke the login or link with this id, or those by *passkey*, or all; return those that were not over.

        Raises:
            NotFoundError: if there is none with the id.
            OSError: if it cannot be written; nothing was revoked.
        """
        if login_id and all(login.id != login_id for login in self.list_all()):
            raise NotFoundError(f"there is no login {login_id!r}.", hint="See `kasmon web links`.")
        over = (LoginState.REVOKED, LoginState.EXPIRED)
        return self._records.change(
            lambda login: (
                login_id in ("", login.id) and passkey in ("", login.passkey) and login.state(now) not in over
            ),
            lambda login: msgspec.structs.replace(login, revoked_at=now),
        )


def _without_oldest(logins: Sequence[WebLogin], now: float) -> list[WebLogin]:
    """Return *logins* without old ones, so that there is space for one more."""
    kept = [login for login in logins if now < login.expires_at + KEPT_S]
    over = max(0, len(kept) + 1 - MAX_LOGINS)
    order = sorted(kept, key=lambda login: (login.state(now) is LoginState.ACTIVE, login.created_at))
    dropped = {login.id for login in order[:over]}
    return [login for login in kept if login.id not in dropped]
