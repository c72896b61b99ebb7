"""A full-text index of what can be searched, in SQLite's FTS5: which pieces of which files may hold some words.

It knows each piece of three characters (FTS5's trigrams) of each stretch of a file, so whatever somebody looks for is
data and never FTS5's own syntax. The text itself stays in the files, where it is looked at again. Like the other index
it is a cache: missing, damaged or of another kasmon, it costs time, never a hit. Its one writer holds
`fleet_index.lock`.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import UnavailableError
from kasmon.store.fleet_cache import DAMAGE, LATER, connect
from kasmon.store.search_sources import SearchSource, SourceLines, blocks

STRETCH_BYTES: Final = 1 << 17
"""A file is known by stretches of so many bytes, and looked through a stretch at a time."""
SETTLED_S: Final = 60.0
"""A file that nothing was added to for so long, in seconds, is known to its end, also where that is a short stretch."""
STALE: Final = 1000
"""With more stretches than this of files that are gone, and more than of those that are there, it begins anew."""
FOUND_BY: Final = ("store/search_index.py", "store/search_sources.py", "model/transcript/search_text.py", "sanitize.py")
"""All that decides what is found in a file."""

Range = tuple[int, int]
Key = tuple[str, str, int]
"""Session, name and inode of a file."""


def _version() -> int:
    """Which way of finding made an index: another one's is not read."""
    package = Path(__file__).parents[1]
    with contextlib.suppress(OSError):  # it lies in an archive, which only another version replaces
        return zlib.crc32(b"".join((package / name).read_bytes() for name in FOUND_BY)) & 0x7FFF_FFFF
    return 1


VERSION: Final = _version()


class IndexedFile(NamedTuple):
    """What the index knows of one file."""

    row: int
    cursor: int
    """So far, in bytes, it was looked through."""


class SearchLookup:
    """What the index at *path* says about files that hold all of *grams*; nothing where it is not usable."""

    def __init__(self, path: Path, grams: Sequence[str]) -> None:
        self._cursors: dict[Key, int] = {}
        self._stretches: dict[Key, list[Range]] = {}
        if grams:
            with contextlib.suppress(sqlite3.Error):
                self._read(path, grams)

    def ranges(self, source: SearchSource) -> list[Range]:
        """Where in *source* the words may stand: from which to before which byte, in order."""
        key = (source.session, source.name, source.inode)
        cursor = self._cursors.get(key, 0)
        if cursor > source.size:
            return [(0, source.size)]
        found = [*self._stretches.get(key, ()), *([(cursor, source.size)] if cursor < source.size else [])]
        joined: list[Range] = []
        for start, end in found:
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        return joined

    def _read(self, path: Path, grams: Sequence[str]) -> None:
        database = connect(path)
        try:
            database.execute("BEGIN")
            if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                return
            wanted = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)
            found = database.execute(
                "SELECT source, start, end FROM stretch WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?) "
                "ORDER BY source, start",
                (wanted,),
            ).fetchall()
            keys: dict[int, Key] = {}
            cursors: dict[Key, int] = {}
            for row, session, name, inode, cursor in database.execute(
                "SELECT id, session, name, inode, cursor FROM source"
            ):
                keys[row] = (session, name, inode)
                cursors[keys[row]] = cursor
        finally:
            database.close()
        for row, start, end in found:
            if row in keys:
                self._stretches.setdefault(keys[row], []).append((start, end))
        self._cursors = cursors


class SearchIndex:
    """The writer's end. Make one only while holding `fleet_index.lock`; use it from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._known: dict[Key, IndexedFile] = {}

    def learn(
        self,
        sources: Iterable[SearchSource],
        text_of: Callable[[SearchSource, SourceLines], str],
        now: float,
        most_bytes: int,
    ) -> int:
        """Look through what was added to *sources*, and note it: about *most_bytes* at once. How many bytes that were.

        All of it or nothing. 0 where nothing is left to do, or another connection has the index now; a damaged one is
        thrown away, and made anew from the next call on.

        Raises:
            UnavailableError: if the disk does not take it.
        """
        try:
            database = self._opened()
            database.execute("BEGIN IMMEDIATE")
            try:
                learnt = self._learn(database, sources, text_of, now, most_bytes)
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                    self._known = _known(database)
        except sqlite3.Error as error:
            self.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
            if code in LATER:
                return 0
            if code in DAMAGE:
                self._throw_away()
                return 0
            raise UnavailableError(f"the search index {str(self.path)!r} cannot be written: {error}.") from error
        except OSError as error:
            self.close()
            raise UnavailableError(f"the search index {str(self.path)!r} cannot be written: {error}.") from error
        return learnt

    def keep(self, sources: Iterable[SearchSource]) -> None:
        """Forget every file but *sources*."""
        there = {(source.session, source.name, source.inode) for source in sources}
        gone = [known.row for key, known in self._known.items() if key not in there]
        if self._database is None or not gone:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("DELETE FROM stretch WHERE source = ?", [(row,) for row in gone])
            self._database.executemany("DELETE FROM source WHERE id = ?", [(row,) for row in gone])
            kept = self._database.execute("SELECT count(*) FROM stretch").fetchone()[0]
            ever = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'stretch'").fetchone()[0]
            self._database.execute("COMMIT")
        except sqlite3.Error:  # they are found in no file: it is tried again
            self.close()
            return
        self._known = _known(self._database)
        if ever - kept > max(STALE, kept):
            self._throw_away()

    def close(self) -> None:
        """Let go of the file; idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _learn(
        self,
        database: sqlite3.Connection,
        sources: Iterable[SearchSource],
        text_of: Callable[[SearchSource, SourceLines], str],
        now: float,
        most_bytes: int,
    ) -> int:
        learnt = 0
        for source in sources:
            key = (source.session, source.name, source.inode)
            known = self._known.get(key) or IndexedFile(0, 0)
            cursor = known.cursor if known.cursor <= source.size else 0
            is_settled = now - source.changed_at >= SETTLED_S
            if source.size - cursor < (1 if is_settled else STRETCH_BYTES):
                continue
            if cursor < known.cursor:  # it is another file than it was
                database.execute("DELETE FROM stretch WHERE source = ?", (known.row,))
            row = known.row or _added(database, key)
            for block in blocks(source, cursor, source.size, STRETCH_BYTES):
                end = block.start + len(block.content)
                if not is_settled and source.size - block.start < STRETCH_BYTES:
                    break
                added = database.execute(
                    "INSERT INTO stretch (source, start, end) VALUES (?, ?, ?)", (row, block.start, end)
                )
                text = text_of(source, block)
                database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, text))
                learnt, cursor = learnt + len(block.content), end
                if learnt >= most_bytes:
                    break
            database.execute("UPDATE source SET cursor = ? WHERE id = ?", (cursor, row))
            self._known[key] = IndexedFile(row, cursor)
            if learnt >= most_bytes:
                break
        return learnt

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            database = connect(self.path, writing=True)
            try:
                if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                    _make(database)
                self._known = _known(database)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _throw_away(self) -> None:
        """It is all derived: what is in there is in the files too."""
        self.close()
        self._known = {}
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            path.unlink(missing_ok=True)


def _make(database: sqlite3.Connection) -> None:
    """Make an empty index, in the place of whatever is there."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for table in ("words", "stretch", "source"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(
            "CREATE TABLE source (id INTEGER PRIMARY KEY, session TEXT NOT NULL, name TEXT NOT NULL, "
            "inode INTEGER NOT NULL, cursor INTEGER NOT NULL, UNIQUE (session, name, inode))"
        )
        database.execute(
            "CREATE TABLE stretch (id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, "
            "start INTEGER NOT NULL, end INTEGER NOT NULL)"
        )
        database.execute("CREATE INDEX stretch_source ON stretch (source)")
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, tokenize='trigram')")
        database.execute(f"PRAGMA user_version={VERSION}")
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _known(database: sqlite3.Connection) -> dict[Key, IndexedFile]:
    rows = database.execute("SELECT id, session, name, inode, cursor FROM source")
    return {(session, name, inode): IndexedFile(row, cursor) for row, session, name, inode, cursor in rows}


def _added(database: sqlite3.Connection, key: Key) -> int:
    row = database.execute("INSERT INTO source (session, name, inode, cursor) VALUES (?, ?, ?, 0)", key).lastrowid
    assert row is not None
    return row
