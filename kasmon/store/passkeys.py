"""Passkeys that log in to the list of sessions of `kasmon web`. A record has no secret: only the public key."""

from typing import Final

import msgspec

from kasmon.errors import NotFoundError, RefusedError
from kasmon.paths import Paths
from kasmon.store.signed_records import SignedRecords

MAX_PASSKEYS: Final = 20


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey. Times are seconds since the epoch."""

    id: str
    credential: bytes
    """Its id, as the browser names it."""
    public_key: bytes
    sign_count: int
    host: str
    """The host name that it is bound to."""
    login: str
    """The id of the login that added it."""
    created_at: float
    browser: str = ""
    """What that browser calls itself; clean."""
    used_at: float | None = None
    revoked_at: float | None = None

    @property
    def signed(self) -> tuple[object, ...]:
        return (self.id, self.credential, self.public_key, self.host, self.created_at)


class Passkeys:
    """The passkeys of one kasmon. Every call may be made from any process; each looks at the file again."""

    def __init__(self, paths: Paths) -> None:
        self._records = SignedRecords(paths.web_passkeys, paths.request_links_key, Passkey)
        self.list_all = self._records.list_all

    def active(self, host: str) -> tuple[Passkey, ...]:
        """Return those that log in under *host*."""
        return tuple(each for each in self.list_all() if each.host == host and each.revoked_at is None)

    def add(self, passkey: Passkey) -> None:
        """Add *passkey*.

        Raises:
            RefusedError: if there are too many.
            UnavailableError: if it cannot be recorded.
        """
        if sum(each.revoked_at is None for each in self.list_all()) >= MAX_PASSKEYS:
            raise RefusedError(
                f"there are {MAX_PASSKEYS} passkeys already.", hint="`kasmon web links revoke ID` ends one."
            )
        undone = "the passkey was not added"
        self._records.add(passkey, lambda others: [each for each in others if each.revoked_at is None], undone)

    def use(self, passkey_id: str, sign_count: int, now: float) -> bool:
        """Record that it logged in; False if it was revoked.

        Raises:
            OSError: if it cannot be written.
        """
        return bool(
            self._records.change(
                lambda each: each.id == passkey_id and each.revoked_at is None,
                lambda each: msgspec.structs.replace(each, sign_count=sign_count, used_at=now),
            )
        )

    def revoke(self, now: float, passkey_id: str = "", *, login: str = "") -> tuple[Passkey, ...]:
        """Revoke the passkey with this id, or those that *login* added, or all; return those that were not.

        Raises:
            NotFoundError: if there is none with the id.
            OSError: if it cannot be written; nothing was revoked.
        """
        if passkey_id and all(each.id != passkey_id for each in self.list_all()):
            raise NotFoundError(f"there is no passkey {passkey_id!r}.", hint="See `kasmon web links`.")
        return self._records.change(
            lambda each: passkey_id in ("", each.id) and login in ("", each.login) and each.revoked_at is None,
            lambda each: msgspec.structs.replace(each, revoked_at=now),
        )
