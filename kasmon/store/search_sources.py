"""The searchable files of a session: its log, its blobs (texts too long for the log), and its terminal record.

They are searched as bytes first, so that only lines that may match are decoded.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from kasmon.errors import LogMissingError
from kasmon.model.events import decode
from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.model.transcript.search.text import SearchHit, What, around, find_lines, texts
from kasmon.paths import Paths, open_regular
from kasmon.sanitize import clean_block
from kasmon.store import terminal_record
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_index import INODE_MASK

BLOCK_BYTES: Final = 1 << 20
"""How much is read at once; more if a line is longer."""
ESCAPED: Final = rb"\u00"
"""A control character as escaped in logs: text with one may match only after it is cleaned."""
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
SourceKind: TypeAlias = Literal["log", "blob", "record"]
Each = TypeVar("Each")


class SearchSource(NamedTuple):
    """One file, as of the time it was listed."""

    session: SessionId
    kind: SourceKind
    path: Path
    inode: int
    size: int
    changed_at: float

    @property
    def name(self) -> str:
        """The file's name, which identifies it within its session."""
        return self.path.name


class SourceLines(NamedTuple):
    """Some consecutive lines of a file."""

    start: int
    """Their byte offset in the file."""
    content: bytes


class SearchQuery(NamedTuple):
    """A search pattern, and how much of the result to return."""

    pattern: SearchPattern
    context: int = 0
    """How many lines above and below each hit to return."""
    most: int | None = None
    """Return at most this many hits, the newest; None for all."""

    def newest(self, collected: Sequence[Each]) -> Sequence[Each]:
        """Return the last `most` of *collected* (oldest first), plus one more, if any, to show that there are more."""
        return collected[-(self.most + 1) :] if self.most is not None else collected

    def is_enough(self, count: int) -> bool:
        """Return whether *count* hits suffice: `most`, plus one that shows that there are more."""
        return self.most is not None and count > self.most


def sources(paths: Paths, session: SessionId) -> list[SearchSource]:
    """Return the files of *session*: the log, then the parts of its record, newest first, then blobs."""
    sources: list[tuple[SourceKind, Path]] = [("log", paths.log(session))]
    sources += (("record", part) for part in reversed(terminal_record.parts(paths.record(session))))
    sources += (("blob", path) for path in _blobs(paths.blobs(session)))
    collected: list[SearchSource] = []
    for kind, path in sources:
        try:
            facts = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of thousands: a Path costs as much as the call
        except OSError:
            continue
        inode = facts.st_ino & INODE_MASK
        collected.append(SearchSource(session, kind, path, inode, facts.st_size, facts.st_mtime))
    return collected


def blocks(source: SearchSource, start: int, end: int, size: int = BLOCK_BYTES) -> Iterator[SourceLines]:
    """Yield the complete lines from *start* to before *end*, about *size* bytes at a time; omit a partial last line.

    The last line of a blob is complete even without a newline.

    Raises:
        OSError: if the file cannot be read.
    """
    try:
        handle = open_regular(source.path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        rest = b""
        while start + len(rest) < end:
            more = os.pread(handle, min(size, end - start - len(rest)), start + len(rest))
            content = rest + more
            is_last = not more or start + len(content) >= end
            cut = len(content) if is_last and source.kind == "blob" else content.rfind(b"\n") + 1
            if cut:
                yield SourceLines(start, content[:cut])
            start, rest = start + cut, content[cut:]
            if not more:
                return
    finally:
        os.close(handle)


def text_of(source: SearchSource, block: SourceLines, in_terminal: bool) -> str:
    if source.kind == "blob":
        return clean_block(block.content.decode("utf-8", "replace"))
    if source.kind == "record":
        return "\n".join(text for _, _, text in _parse_record(block.content))
    return "\n".join(
        text for line in block.content.split(b"\n") if line for _, text in texts(decode(line), in_terminal)
    )


def hits(source: SearchSource, block: SourceLines, query: SearchQuery, *, in_terminal: bool) -> list[SearchHit]:
    """Return the matches in *block*, in order. Hits in a blob have place and time 0, which a blob does not contain.

    At most as many as suffice, the last ones, plus one that shows that there are more.
    """
    pattern = query.pattern
    content = block.content.lower() if pattern.ignores_case else block.content
    if pattern.needle not in content and (source.kind != "log" or ESCAPED not in content):
        return []
    if source.kind == "record":
        return _hits_printed(source, block, query)
    if source.kind == "blob":
        text = clean_block(block.content.decode("utf-8", "replace"))
        return _hits_in(text.split("\n"), _Spot(source.session, "output"), query)
    collected: list[list[SearchHit]] = []
    for start, line in reversed([*_lines_with((pattern.needle, ESCAPED), content, block.content)]):
        event = decode(line)
        event_hits: list[SearchHit] = []
        for what, text in texts(event, in_terminal):
            spot = _Spot(source.session, what, block.start + start, event.at)
            event_hits += _hits_in(text.split("\n"), spot, query)
        collected.append(event_hits)
        if query.is_enough(sum(map(len, collected))):
            break
    return [hit for event_hits in reversed(collected) for hit in event_hits]


def find_blob_event(log: Path, digest: str) -> tuple[int, float]:
    """Return the offset in *log* of the event whose text is blob *digest*, and its time; zeros if there is none."""
    with contextlib.suppress(LogMissingError, OSError):
        start = 0
        for line, cursor in EventLog(log).lines():
            if digest.encode() in line:
                return start, decode(line).at
            start = cursor
    return 0, 0.0


class _Spot(NamedTuple):
    """The fields of a hit that its line does not contain."""

    session: SessionId
    what: What
    place: int = 0
    at: float = 0.0


def _hits_in(lines: Sequence[str], spot: _Spot, query: SearchQuery) -> list[SearchHit]:
    return [_hit(spot, lines, span, query.context) for span in find_lines(lines, query.pattern)]


def _hits_printed(source: SearchSource, block: SourceLines, query: SearchQuery) -> list[SearchHit]:
    printed = [*_parse_record(block.content)]
    lines = [text for _, _, text in printed]
    return [
        _hit(_Spot(source.session, "printed", *printed[span[0]][:2]), lines, span, query.context)
        for span in query.newest([*find_lines(lines, query.pattern)])
    ]


def hits_on_screen(paths: Paths, session: SessionId, query: SearchQuery) -> list[SearchHit]:
    """Return the matches on the last recorded screen of *session*."""
    shown = terminal_record.screen(paths.record(session))
    if shown is None:
        return []
    return [
        _hit(_Spot(session, "printed", shown.first + span[0], shown.at), shown.lines, span, query.context)
        for span in find_lines(shown.lines, query.pattern)
    ]


def _hit(spot: _Spot, lines: Sequence[str], span: tuple[int, int, int], context: int) -> SearchHit:
    number, start, end = span
    before, after = around(lines, number, context)
    return SearchHit(
        session=spot.session,
        at=spot.at,
        source="terminal" if spot.what == "printed" else "transcript",
        position=spot.place,
        what=spot.what,
        line=lines[number],
        start=start,
        end=end,
        before=before,
        after=after,
    )


def _parse_record(content: bytes) -> Iterator[tuple[int, float, str]]:
    """Yield the record lines in *content* with their numbers and times."""
    decoded = (terminal_record.decode(line) for line in content.split(b"\n") if line)
    return terminal_record.number_lines(each for each in decoded if each is not None)


def _lines_with(needles: Sequence[bytes], content: bytes, original: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of *original* where *content* contains any of *needles*, in order, each with its byte offset."""
    starts: set[int] = set()
    for each in needles:
        at = content.find(each)
        while at >= 0:
            starts.add(content.rfind(b"\n", 0, at) + 1)
            end = content.find(b"\n", at)
            at = content.find(each, end + 1) if 0 <= end < len(content) - 1 else -1
    for start in sorted(starts):
        end = original.find(b"\n", start)
        yield start, original[start : end if end >= 0 else len(original)]


def _blobs(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - of thousands of sessions: a Path for each costs more than the call
    except OSError:
        return []
    return [folder / name for name in sorted(names) if DIGEST.fullmatch(name)]
