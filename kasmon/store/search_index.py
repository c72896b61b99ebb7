"""A full-text index in SQLite's FTS5: which parts of which files may contain the searched text.

It indexes the trigrams of each part of a file, so a query is always data, never FTS5 syntax. The text itself stays
in the files; a search reads the candidates there. Like the fleet cache, it can be rebuilt: if it is missing, damaged
or of another kasmon, a search takes longer but finds the same. Its one writer holds `fleet.lock`.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import UnavailableError
from kasmon.paths import open_regular
from kasmon.store.fleet_cache import DAMAGE, LATER, connect
from kasmon.store.search_sources import SearchSource, SourceLines, blocks

STRETCH_BYTES: Final = 1 << 17
SETTLED_S: Final = 60.0
"""A file unchanged for this many seconds is indexed to its end, even if the last stretch is shorter."""
STALE: Final = 1000
"""The index is rebuilt if more than this many stretches, and more than the remaining ones, are of deleted files."""
FOUND_BY: Final = ("store/search_index.py", "store/search_sources.py", "model/transcript/search/text.py", "sanitize.py")
"""The source files that determine what a search finds in a file."""

ByteRange = tuple[int, int]
FileKey = tuple[str, str, int]
"""Session, name and inode of a file."""


def _version() -> int:
    """Return a checksum of the search code; an index made by other code is not read."""
    package = Path(__file__).parents[1]
    with contextlib.suppress(OSError):  # the package is in an archive, which only another version replaces
        return zlib.crc32(b"".join((package / name).read_bytes() for name in FOUND_BY)) & 0x7FFF_FFFF
    return 1


VERSION: Final = _version()


class IndexedFile(NamedTuple):
    row: int
    cursor: int
    """How many bytes of the file are indexed."""


class SearchLookup:
    """The indexed stretches that contain all of *grams*; none if the index at *path* is unusable."""

    def __init__(self, path: Path, grams: Sequence[str]) -> None:
        self._cursors: dict[FileKey, int] = {}
        self._stretches: dict[FileKey, list[ByteRange]] = {}
        if grams:
            with contextlib.suppress(sqlite3.Error):
                self._read(path, grams)

    def ranges(self, source: SearchSource) -> list[ByteRange]:
        """Return the byte ranges of *source* that may contain the text, in order; each end is exclusive."""
        key = (source.session, source.name, source.inode)
        cursor = self._cursors.get(key, 0)
        if cursor > source.size:
            return [(0, source.size)]
        found = [*self._stretches.get(key, ()), *([(cursor, source.size)] if cursor < source.size else [])]
        joined: list[ByteRange] = []
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
            expression = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)
            found = database.execute(
                "SELECT source, start, end FROM stretch WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?) "
                "ORDER BY source, start",
                (expression,),
            ).fetchall()
            keys: dict[int, FileKey] = {}
            cursors: dict[FileKey, int] = {}
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
    """The writer of the index. Create one only while holding `fleet.lock`; use it from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._entries: dict[FileKey, IndexedFile] = {}

    def update(
        self,
        sources: Iterable[SearchSource],
        text_of: Callable[[SearchSource, SourceLines], str],
        now: float,
        most_bytes: int,
    ) -> int:
        """Index what was added to *sources*, about *most_bytes* per call; return how many bytes were indexed.

        Each call is one transaction. 0 means that nothing is left to index, or that another connection uses the index.
        A damaged index is deleted; later calls rebuild it.

        Raises:
            UnavailableError: if it cannot be written to the disk.
        """
        try:
            database = self._open()
            with database:
                database.execute("BEGIN IMMEDIATE")
                return self._index_sources(database, sources, text_of, now, most_bytes)
        except BaseException as error:
            self.close()  # the next call reads again what is indexed
            if not isinstance(error, sqlite3.Error | OSError):
                raise
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
            if code in LATER:
                return 0
            if code in DAMAGE:
                self._delete()
                return 0
            raise UnavailableError(f"the search index {str(self.path)!r} cannot be written: {error}.") from error

    def retain_only(self, sources: Iterable[SearchSource]) -> None:
        """Remove the entries of all files but *sources*."""
        current = {(source.session, source.name, source.inode) for source in sources}
        missing = [entry.row for key, entry in self._entries.items() if key not in current]
        if self._database is None or not missing:
            return
        try:
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM stretch WHERE source = ?", [(row,) for row in missing])
                database.executemany("DELETE FROM source WHERE id = ?", [(row,) for row in missing])
                remaining = database.execute("SELECT count(*) FROM stretch").fetchone()[0]
                total = database.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'stretch'").fetchone()[0]
        except sqlite3.Error:  # they match no file, so a later call can remove them
            self.close()
            return
        self._entries = _read_entries(self._database)
        if (total or 0) - remaining > max(STALE, remaining):
            self._delete()

    def close(self) -> None:
        """Close the database; idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _index_sources(
        self,
        database: sqlite3.Connection,
        sources: Iterable[SearchSource],
        text_of: Callable[[SearchSource, SourceLines], str],
        now: float,
        most_bytes: int,
    ) -> int:
        indexed_bytes = 0
        for source in sources:
            key = (source.session, source.name, source.inode)
            entry = self._entries.get(key) or IndexedFile(0, 0)
            cursor = entry.cursor if entry.cursor <= source.size else 0
            is_settled = now - source.changed_at >= SETTLED_S
            if source.size - cursor < (1 if is_settled else STRETCH_BYTES):
                continue
            if cursor < entry.cursor:  # the file was replaced
                database.execute("DELETE FROM stretch WHERE source = ?", (entry.row,))
            row = entry.row or _insert_file(database, key)
            for block in blocks(source, cursor, source.size, STRETCH_BYTES):
                end = block.start + len(block.content)
                if not is_settled and source.size - block.start < STRETCH_BYTES:
                    break
                added = database.execute(
                    "INSERT INTO stretch (source, start, end) VALUES (?, ?, ?)", (row, block.start, end)
                )
                text = text_of(source, block)
                database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, text))
                indexed_bytes, cursor = indexed_bytes + len(block.content), end
                if indexed_bytes >= most_bytes:
                    break
            database.execute("UPDATE source SET cursor = ? WHERE id = ?", (cursor, row))
            self._entries[key] = IndexedFile(row, cursor)
            if indexed_bytes >= most_bytes:
                break
        return indexed_bytes

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            os.close(open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
            database = connect(self.path, writing=True)
            try:
                if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                    _create_schema(database)
                self._entries = _read_entries(database)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _delete(self) -> None:
        """Delete the index; all of its content is derived from the files."""
        self.close()
        self._entries = {}
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            path.unlink(missing_ok=True)


def _create_schema(database: sqlite3.Connection) -> None:
    with database:
        database.execute("BEGIN IMMEDIATE")
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


def _read_entries(database: sqlite3.Connection) -> dict[FileKey, IndexedFile]:
    rows = database.execute("SELECT id, session, name, inode, cursor FROM source")
    return {(session, name, inode): IndexedFile(row, cursor) for row, session, name, inode, cursor in rows}


def _insert_file(database: sqlite3.Connection, key: FileKey) -> int:
    row = database.execute("INSERT INTO source (session, name, inode, cursor) VALUES (?, ?, ?, 0)", key).lastrowid
    assert row is not None
    return row
