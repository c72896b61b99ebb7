"""A cache of folded logs in SQLite, so that a cold start reads only what was added since.

Nothing is true because it stands here: a missing, foreign, older or damaged index costs time, never facts. Readers open
it read-only; the one writer is the process that holds `fleet_index.lock`. There is no WAL and no memory map, so a
reader leaves no trace and a writer that is killed leaves a journal that the next one rolls back.
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
from kasmon.store.event_log import Cursor
from kasmon.store.fleet_index import FleetIndex, FoldedSession

BUSY_S = 1.0
"""How long to wait for another connection. A reader that gives up folds everything; a writer comes again."""
FOLDED_BY: Final = (
    "store/fleet_index.py",
    "store/event_log.py",
    "model/reducers/apply.py",
    "model/reducers/lifecycle.py",
    "model/reducers/lifecycle.py",
    "model/reducers/requests.py",
    "model/reducers/sandbox.py",
    "model/reducers/evidence.py",
    "model/reducers/state.py",
    "model/reducers/turns.py",
    "model/session.py",
    "model/agent_program.py",
    "model/events.py",
    "model/evidence.py",
    "model/session_state.py",
    "model/work_progress.py",
    "model/commands.py",
    "model/permission.py",
    "model/sandbox/state.py",
    "model/sandbox/policy.py",
)
"""All that decides what a log adds up to."""


def fold_name(package: Path) -> str:
    """What tells the fold of the kasmon in *package* from every other: its version, and a sum over its source."""
    try:
        source = b"".join((package / name).read_bytes() for name in FOLDED_BY)
    except OSError:  # it lies in an archive, which only another version replaces
        return __version__
    return f"{__version__}/{zlib.crc32(source):08x}"


FOLD: Final = fold_name(Path(__file__).parents[1])
"""Which fold makes our rows, as it was when this process began; rows of another are folded anew."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR})
LATER = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

# JSON as in the logs: what one can hold, a number of any size say, the other can too. MessagePack could not.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


def _first_tables(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE fleet (fold TEXT NOT NULL, inode INTEGER NOT NULL, cursor INTEGER NOT NULL)")
    database.execute(
        "CREATE TABLE session (id TEXT PRIMARY KEY, inode INTEGER NOT NULL, cursor INTEGER NOT NULL, "
        "folded BLOB NOT NULL) WITHOUT ROWID"
    )


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_tables,)
"""Each makes the next version of the schema; `PRAGMA user_version` counts those that were run."""


def connect(path: Path, *, writing: bool = False) -> sqlite3.Connection:
    """A connection to the index at *path*; the only place that makes one. Readers can change nothing with theirs.

    Raises:
        sqlite3.Error: if there is none to read, or it cannot be opened.
    """
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


def remember(path: Path, fold: FleetIndex) -> bool:
    """Start *fold* where the index at *path* ends; False, and nothing done, where it is missing or not usable."""
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
    fold.start_at(rows, Cursor(fleet_cursor), fleet_inode)
    return True


class FleetCache:
    """The writer's end. Make one only while holding `fleet_index.lock`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._database: sqlite3.Connection | None = None

    def write(self, fold: FleetIndex, changed: Iterable[SessionId], gone: Iterable[SessionId]) -> bool:
        """Note where *fold* stands: the rows of *changed* anew, those of *gone* no more; the first time, every row.

        All of it or nothing. False if it has to be tried again with the same sessions: the index is in use, belongs
        to a newer kasmon, or was damaged and is now set aside as `index.db~<time>`.

        Raises:
            UnavailableError: if the disk does not take it.
        """
        try:
            afresh = self._database is None
            self._database = self._database or self._opened()
            written = _write(self._database, fold, fold.sessions.keys() if afresh else changed, gone, afresh)
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
        """Let go of the file; idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return connect(self.path, writing=True)


def _write(
    database: sqlite3.Connection,
    fold: FleetIndex,
    changed: Iterable[SessionId],
    gone: Iterable[SessionId],
    afresh: bool,
) -> bool:
    """Write all of it or nothing; false if it is a newer kasmon's. *afresh* touches, and so checks, every page."""
    rows = [
        (session, folded.inode, folded.cursor, _encode(folded.session))
        for session in changed
        if (folded := fold.sessions.get(session)) is not None
    ]
    database.execute("BEGIN IMMEDIATE")
    try:
        if not _migrated(database):
            return False
        if afresh:
            database.execute("DELETE FROM session")
        database.execute("DELETE FROM fleet")
        database.execute("INSERT INTO fleet VALUES (?, ?, ?)", (FOLD, fold.inode, fold.cursor))
        database.executemany("DELETE FROM session WHERE id = ?", [(session,) for session in gone])
        database.executemany("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")
        return True
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _migrated(database: sqlite3.Connection) -> bool:
    """Bring the schema to this version, within the caller's transaction; False if it is a newer kasmon's."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for number, migrate in enumerate(MIGRATIONS[version:], version + 1):
        migrate(database)
        database.execute(f"PRAGMA user_version={number}")
    return bool(version <= len(MIGRATIONS))
