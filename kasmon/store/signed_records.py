"""A file of records whose tokens are signed with a key in a file of its own: neither file alone contains a token.

Each change replaces the file of records whole, under a lock; a record that is missing or unreadable gives nothing.
"""

import base64
import hmac
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from kasmon.errors import UnavailableError
from kasmon.paths import open_regular, private_folder, write_private
from kasmon.store.file_lock import lock

ID_BYTES: Final = 9
KEY_BYTES: Final = 32
TOKEN: Final = re.compile(r"([A-Za-z0-9_-]{12})([A-Za-z0-9_-]{43})")


class Record(Protocol):
    """What is kept: a frozen struct with an id from `new_id`."""

    @property
    def id(self) -> str: ...

    @property
    def signed(self) -> tuple[object, ...]:
        """The fields that a token is bound to."""
        ...


RecordT = TypeVar("RecordT", bound=Record)


class SignedRecords(Generic[RecordT]):
    """The records of one file. Every call may be made from any process; each looks at the files again."""

    def __init__(self, path: Path, key_path: Path, kind: type[RecordT]) -> None:
        self._path, self._key_path, self._kind = path, key_path, kind
        self._read: tuple[tuple[int, int, int], tuple[RecordT, ...]] | None = None
        """The records that were read last, and the file's identity then."""

    def list_all(self, *, is_fresh: bool = False) -> tuple[RecordT, ...]:
        """Return all records, oldest first; none if the file is missing or unreadable.

        *is_fresh*: read the file even if it seems to be the one that was read last.
        """
        try:
            with os.fdopen(open_regular(self._path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                facts = os.fstat(file.fileno())
                identity = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
                if is_fresh or self._read is None or self._read[0] != identity:
                    self._read = identity, tuple(msgspec.json.decode(file.read(), type=list[self._kind]))  # type: ignore[name-defined]
                return self._read[1]
        except (OSError, msgspec.DecodeError):
            return ()

    def add(self, record: RecordT, select: Callable[[Sequence[RecordT]], Sequence[RecordT]], undone: str) -> None:
        """Add *record* to those that *select* returns; makes the key if there is none.

        *undone*: what was not done if it fails, as `no link was created`.

        Raises:
            UnavailableError: if others can read the key, or nothing can be written.
        """
        try:
            private_folder(self._path.parent)
            with lock(self._path):
                if not self.key():
                    write_private(self._key_path, os.urandom(KEY_BYTES), durable=True)
                self._write((*select(self.list_all(is_fresh=True)), record), durable=False)
        except OSError as error:
            raise UnavailableError(f"{undone}: {error.strerror or error}.") from error

    def find(self, token: str, purpose: str) -> RecordT | None:
        """Return the record of *token*; None if its signature for *purpose* is wrong or its record is gone.

        Raises:
            UnavailableError: if others can read the key.
        """
        match = TOKEN.fullmatch(token)
        record = match and next((each for each in self.list_all() if each.id == match[1]), None)
        if not match or not record or not self.key():
            return None
        return record if hmac.compare_digest(match[2], self.sign(record, purpose)) else None

    def token(self, record: RecordT, purpose: str) -> str:
        """Return the token of *record* for *purpose*: a secret."""
        return record.id + self.sign(record, purpose)

    def sign(self, record: RecordT, purpose: str) -> str:
        """Return a secret that only *record* and *purpose* have; without a key, one that nothing else has."""
        return self.sign_text(purpose, *record.signed)

    def sign_text(self, *signed: object) -> str:
        """Return the signature of *signed*, values that JSON can contain; without a key, one that nothing else has."""
        digest = hmac.digest(self.key() or os.urandom(KEY_BYTES), msgspec.json.encode(signed), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def change(self, is_meant: Callable[[RecordT], bool], change: Callable[[RecordT], RecordT]) -> tuple[RecordT, ...]:
        """Replace each record that *is_meant*, durably, and return these as they are now.

        Raises:
            OSError: if it cannot be written; nothing changed.
        """
        if not self._path.exists():
            return ()
        with lock(self._path):
            records = self.list_all(is_fresh=True)
            changed = {record.id: change(record) for record in records if is_meant(record)}
            if changed:
                self._write([changed.get(record.id, record) for record in records], durable=True)
        return tuple(changed.values())

    def drop(self, is_meant: Callable[[RecordT], bool]) -> None:
        """Remove each record that *is_meant*, durably. Raises `OSError` if it cannot be written."""
        if not self._path.exists():
            return
        with lock(self._path):
            records = self.list_all(is_fresh=True)
            if len(left := [each for each in records if not is_meant(each)]) < len(records):
                self._write(left, durable=True)

    def key(self) -> bytes:
        """Return the key; empty if there is none. Raises `UnavailableError` if it is not private."""
        try:
            with os.fdopen(open_regular(self._key_path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
                    raise UnavailableError(
                        f"{str(self._key_path)!r}, the key of links and logins, is readable by others.",
                        hint="Remove it: the next link makes a new key, and no earlier link or login works then.",
                    )
                key = file.read(KEY_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UnavailableError(f"{str(self._key_path)!r} cannot be read: {error.strerror or error}.") from error
        return key if len(key) == KEY_BYTES else b""

    def _write(self, records: Sequence[RecordT], *, durable: bool) -> None:
        write_private(self._path, msgspec.json.encode(records), durable=durable)


def new_id() -> str:
    """Return the id of a new record. It begins with no dash: the command line would read an option."""
    while (made := base64.urlsafe_b64encode(os.urandom(ID_BYTES)).decode()).startswith("-"):
        pass
    return made
