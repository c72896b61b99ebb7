"""A SQLite cache of sessions folded from their logs, so that a cold start reads only events added since.

The logs stay the source of truth: a missing, foreign, older or damaged cache costs time, never events. Readers open
it read-only; the one writer is the process that holds `fleet.lock`. There is no WAL and no memory map, so a
reader leaves no files. A writer that is killed leaves a journal, which the next one rolls back.
"""

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from kasmon import __version__
from kasmon.errors import UnavailableError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import check_regular, open_regular
from kasmon.store.event_log import Cursor
from kasmon.store.fleet_index import FleetIndex, FoldedSession

BUSY_S = 1.0
"""How long to wait for another connection. A reader that gives up folds all logs; a writer tries again later."""
FOLDED_BY: Final = (
    "store/fleet_index.py",
    "store/event_log.py",
    "model/reducers/apply.py",
    "model/reducers/lifecycle.py",
    "model/reducers/session_requests.py",
    "model/reducers/sandbox.py",
    "model/reducers/evidence.py",
    "model/reducers/state.py",
    "model/session.py",
    "model/agent_program.py",
    "model/events.py",
    "model/evidence.py",
    "model/session_state.py",
    "model/work_progress.py",
    "model/commands.py",
    "model/prompts/image.py",
    "model/limits/window.py",
    "model/permission.py",
    "model/sandbox/state.py",
    "model/sandbox/policy.py",
    "sanitize.py",
)
"""The source files that determine what a log folds to."""


def fold_name(package: Path) -> str:
    """Return the identifier of the fold code in *package*: its version and a checksum of its source."""
    try:
        source = b"".join((package / name).read_bytes() for name in FOLDED_BY)
    except OSError:  # the package is in an archive, which only another version replaces
        return __version__
    return f"{__version__}/{zlib.crc32(source):08x}"


FOLD: Final = fold_name(Path(__file__).parents[1])
"""The fold code of this process, as it was at its start. Cached rows of any other are folded again."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR})
LATER = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

# JSON as in the logs, so that both hold the same values, such as integers of any size. MessagePack could not.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


def _create_tables(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE fleet (fold TEXT NOT NULL, inode INTEGER NOT NULL, cursor INTEGER NOT NULL)")
    database.execute(
        "CREATE TABLE session (id TEXT PRIMARY KEY, inode INTEGER NOT NULL, cursor INTEGER NOT NULL, "
        "folded BLOB NOT NULL) WITHOUT ROWID"
    )


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_tables,)
"""Each function migrates the schema to the next version; `PRAGMA user_version` counts those that ran."""


def connect(path: Path, *, writing: bool = False) -> sqlite3.Connection:
    """Open a connection to the cache at *path*; all connections are made here. A reader's connection is read-only.

    Raises:
        sqlite3.Error: if a reader finds no cache, or it cannot be opened, or is no regular file: a FIFO would block.
    """
    try:
        check_regular(path, path.lstat())
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror) from error
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if writing else 'ro'}"
    database = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA mmap_size=0")
        database.execute("PRAGMA synchronous=NORMAL" if writing else "PRAGMA query_only=1")
        if writing:
            database.execute("PRAGMA journal_mode=DELETE")
    except BaseException:
        database.close()
        raise
    return database


def load_cache(path: Path, index: FleetIndex) -> bool:
    """Load the cache at *path* into *index*; return False and change nothing if it is missing or unusable."""
    try:
        database = connect(path)
    except sqlite3.Error:
        return False
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != len(MIGRATIONS):
            return False
        database.execute("BEGIN")
        of_fold, fleet_inode, fleet_cursor = database.execute("SELECT fold, inode, cursor FROM fleet").fetchone()
        if of_fold != FOLD:
            return False
        rows = {
            SessionId(session): FoldedSession(_decode(folded), Cursor(cursor), inode, cursor)
            for session, inode, cursor, folded in database.execute("SELECT id, inode, cursor, folded FROM session")
        }
    except (sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError):
        return False
    finally:
        database.close()
    index.start_at(rows, Cursor(fleet_cursor), fleet_inode)
    return True


class FleetCache:
    """The writer of the cache. Create one only while holding `fleet.lock`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._database: sqlite3.Connection | None = None

    def write(self, index: FleetIndex, changed: Iterable[SessionId], gone: Iterable[SessionId]) -> bool:
        """Write the state of *index*: update *changed* rows, delete *gone* ones; the first call writes every row.

        Each call is one transaction. False means: retry with the same sessions, because the cache is in use, belongs to
        a newer kasmon, or was damaged and is now renamed to `index.db~<time>`.

        Raises:
            UnavailableError: if it cannot be written to the disk.
        """
        try:
            is_full = self._database is None
            self._database = self._database or self._open()
            written = _write(self._database, index, index.sessions.keys() if is_full else changed, gone, is_full)
        except (sqlite3.Error, OSError) as error:
            self.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
            if code in LATER:
                return False
            if code in DAMAGE:
                self.path.replace(self.path.with_name(f"{self.path.name}~{int(self._clock())}"))
                return False
            raise UnavailableError(f"the index {str(self.path)!r} cannot be written: {error}.") from error
        if not written:
            self.close()
        return written

    def close(self) -> None:
        """Close the database; idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> sqlite3.Connection:
        os.close(open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
        return connect(self.path, writing=True)


def _write(
    database: sqlite3.Connection,
    index: FleetIndex,
    changed: Iterable[SessionId],
    gone: Iterable[SessionId],
    is_full: bool,
) -> bool:
    """Write in one transaction; False if the cache is a newer kasmon's. *is_full* writes, and so checks, every page."""
    rows = [
        (session, folded.inode, folded.cursor, _encode(folded.session))
        for session in changed
        if (folded := index.sessions.get(session)) is not None
    ]
    with database:
        database.execute("BEGIN IMMEDIATE")
        if not _migrate(database):
            return False
        if is_full:
            database.execute("DELETE FROM session")
        database.execute("DELETE FROM fleet")
        database.execute("INSERT INTO fleet VALUES (?, ?, ?)", (FOLD, index.inode, index.cursor))
        database.executemany("DELETE FROM session WHERE id = ?", [(session,) for session in gone])
        database.executemany("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", rows)
    return True


def _migrate(database: sqlite3.Connection) -> bool:
    """Migrate the schema to this version, within the caller's transaction; False if it is a newer kasmon's."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for number, migrate in enumerate(MIGRATIONS[version:], version + 1):
        migrate(database)
        database.execute(f"PRAGMA user_version={number}")
    return bool(version <= len(MIGRATIONS))
