"""Read the displayed lines of a session: of a terminal from its host, of a structured session from its log."""

from collections.abc import Sequence
from typing import Final, TypeVar

from kasmon.errors import HostUnreachableError
from kasmon.host.rpc import event_loop
from kasmon.host.rpc.connect import reach
from kasmon.host.rpc.frames import FromHost, ReadTerminal, TerminalText
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.session_reader import read_events

WIDTH_CELLS: Final = 100
"""The width at which a structured session's lines are laid out."""
ABOVE: Final = 50
"""How many lines above a terminal's screen are returned if no range is given."""

Line = TypeVar("Line")


def read_lines(
    paths: Paths,
    session: Session,
    start: int | None = None,
    end: int | None = None,
    *,
    lines: int | None = None,
    ansi: bool = False,
    width: int = WIDTH_CELLS,
) -> list[str]:
    """Return the session's lines *start* to *end*, inclusive: n >= 0 counts from the first, n < 0 from the last (-1).

    Without a range, return the last *lines*. Without these too, return a terminal's screen and 50 lines above it, or
    all of a structured session. A terminal's wrapped lines are joined; with *ansi* they include its colours.

    Raises:
        UnavailableError: if a terminal's host or tmux is unavailable.
    """
    if session.mode is not Mode.TMUX:
        return _render(paths, session, start, end, lines, width)
    is_whole = start is None and end is None
    frame = ReadTerminal(
        n=0,
        session=session.id,
        start=-lines if is_whole and lines else start,
        end=end,
        ansi=ansi,
        screen_and=ABOVE if is_whole and lines is None else None,
    )
    text = event_loop.run(_ask(paths, session, frame))
    if not isinstance(text, TerminalText):
        raise HostUnreachableError(session.name, "it did not send its screen")
    return list(text.lines)


async def _ask(paths: Paths, session: Session, frame: ReadTerminal) -> FromHost:
    async with reach(paths, session.id, session.mode) as host:
        return await host.ask(frame)


async def read(
    paths: Paths,
    session: Session,
    start: int | None = None,
    end: int | None = None,
    *,
    lines: int | None = None,
    ansi: bool = False,
    width: int = WIDTH_CELLS,
) -> list[str]:
    """Return what `read_lines` does, without blocking the loop."""
    import asyncio

    return await asyncio.to_thread(read_lines, paths, session, start, end, lines=lines, ansi=ansi, width=width)


def within(lines: Sequence[Line], start: int | None, end: int | None) -> Sequence[Line]:
    """Return *lines* from *start* to *end*, inclusive, counted as in `read`."""
    first = 0 if start is None else start if start >= 0 else max(0, len(lines) + start)
    last = len(lines) - 1 if end is None else end if end >= 0 else len(lines) + end
    return lines[first : last + 1] if last >= first else lines[:0]


def _render(
    paths: Paths, session: Session, start: int | None, end: int | None, lines: int | None, width: int
) -> list[str]:
    from kasmon.model.transcript.layout import Transcript  # its import would be half of the time of `kasmon send`

    transcript = Transcript(fold=False)
    for event in read_events(paths, session.id):
        transcript.add(event)
    drawn = transcript.lines(width)
    if start is None and end is None and lines is not None:
        return [line.text for line in transcript.tail(width, lines)]
    return [line.text for line in within(drawn[:], start, end)]
