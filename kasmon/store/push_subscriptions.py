"""Browsers that a login subscribed to Web Push, and the key that signs what is pushed to them.

The address of a subscription is a secret: who has it can send to the browser, though not read.
"""

import base64
import os
import stat
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kasmon.errors import UnavailableError, UsageError
from kasmon.paths import Paths, open_regular, write_private
from kasmon.store.file_lock import lock
from kasmon.store.signed_records import SignedRecords, new_id
from kasmon.store.web_logins import WebLogins

MAX_SUBSCRIPTIONS: Final = 20
"""The most records; then the oldest is dropped."""
ADDRESS_LENGTH: Final = 1000


class SubscriptionKeys(msgspec.Struct, frozen=True):
    """As a browser names them, in base64."""

    p256dh: str
    auth: str


class BrowserSubscription(msgspec.Struct, frozen=True):
    """What `PushSubscription.toJSON()` returns in a browser."""

    endpoint: str
    keys: SubscriptionKeys


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that gets what is pushed, until its login ends."""

    id: str
    login: str
    endpoint: str
    public_key: bytes
    """An uncompressed point of P-256: 65 bytes."""
    auth: bytes
    """16 bytes."""
    created_at: float

    @property
    def signed(self) -> tuple[object, ...]:
        return (self.id, self.login, self.endpoint)


class PushSubscriptions:
    """The subscriptions of one kasmon. Every call may be made from any process; each looks at the file again."""

    def __init__(self, paths: Paths) -> None:
        self._key_path, self._logins = paths.web_push_key, WebLogins(paths)
        self._records = SignedRecords(paths.web_push, paths.request_links_key, PushSubscription)
        self.list_all = self._records.list_all

    def active(self, now: float) -> tuple[PushSubscription, ...]:
        """Return those whose login is active."""
        found = self.list_all()
        return tuple(each for each in found if self._logins.is_active(each.login, now)) if found else ()

    def remove(self, subscription: str = "", *, login: str = "") -> None:
        """Forget the one with this id, or of this login.

        Raises:
            OSError: if it cannot be written.
        """
        self._records.drop(lambda each: each.id == subscription or each.login == login)

    def add(self, body: bytes, login: str, now: float) -> None:
        """Subscribe the browser of *login*, instead of before, by *body*, the JSON of a `BrowserSubscription`.

        Raises:
            UsageError: if it is none.
            UnavailableError: if it cannot be recorded.
        """
        try:
            given = msgspec.json.decode(body, type=BrowserSubscription)
            public_key, auth = (_decode(each) for each in (given.keys.p256dh, given.keys.auth))
            address = urlsplit(given.endpoint)
            is_right = (len(public_key), public_key[:1], len(auth)) == (65, b"\x04", 16)
            if (
                not is_right
                or address.scheme != "https"
                or not address.hostname
                or len(given.endpoint) > ADDRESS_LENGTH
            ):
                raise ValueError(given.endpoint)
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError("the browser sent no subscription to Web Push.") from error
        record = PushSubscription(
            id=new_id(), login=login, endpoint=given.endpoint, public_key=public_key, auth=auth, created_at=now
        )
        self._records.add(
            record,
            lambda others: [each for each in others if each.login != login][-MAX_SUBSCRIPTIONS + 1 :],
            "the subscription was not recorded",
        )

    def key(self) -> bytes:
        """Return the private key that signs messages, 32 bytes; makes it if there is none.

        Raises:
            UnavailableError: if others can read it, or it cannot be written.
        """
        try:
            with lock(self._key_path):
                if not self._key_path.exists():
                    write_private(self._key_path, _new_key(), durable=True)
                with os.fdopen(open_regular(self._key_path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                        raise UnavailableError(
                            f"{str(self._key_path)!r}, the key of Web Push, is readable by others.",
                            hint="Remove it, and subscribe each browser again.",
                        )
                    return file.read(32)
        except OSError as error:
            raise UnavailableError(f"{str(self._key_path)!r} cannot be used: {error.strerror or error}.") from error


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def _new_key() -> bytes:
    """Return a private key of P-256: a number from 1 to below its order, which 32 random bytes practically are."""
    return b"\x00" + os.urandom(31)
