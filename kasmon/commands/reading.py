"""`kasmon read`: what a session shows, by line ranges that mean the same in both modes."""

import asyncio
import re
from typing import Final

from kasmon.clean import clean_block
from kasmon.commands.objects import answer
from kasmon.commands.output import tell
from kasmon.errors import UsageError
from kasmon.paths import places
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once

_SGR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_LINE: Final = re.compile(r"-?\d+")


def read(wanted: str, *, span: str | None, lines: int | None, ansi: bool, wants_json: bool) -> None:
    """Print lines of what the session shows: of *span* (`A:B`), the last *lines*, or as many as its kind shows at once.

    Raises:
        NotFoundError: if there is no such session.
        UsageError: if the range is none.
    """
    start, end = range_of(span)
    if lines is not None and lines < 1:
        raise UsageError(f"{lines} lines are none.")
    if span is not None and lines is not None:
        raise UsageError("--range and --lines do not go together.", hint="`--range -N:` is the last N lines.")
    where = places()
    session = find(look_once(where), wanted)
    shown = asyncio.run(verb.read(where, session, start, end, lines=lines, ansi=ansi))
    if wants_json:
        tell(answer(session=session.id, lines=list(shown)))
        return
    for line in shown:
        print(with_colours(line) if ansi else clean_block(line))


def range_of(said: str | None) -> tuple[int | None, int | None]:
    """The ends of a range `A:B`; None is the buffer's beginning or end, negative counts from its end.

    Raises:
        UsageError: if it is none.
    """
    if said is None:
        return None, None
    start, colon, end = said.partition(":")
    if not colon or not all(part in ("", "-") or _LINE.fullmatch(part) for part in (start, end)):
        raise UsageError(
            f"{said!r} is no range of lines.", hint="A range is A:B; each is a line, -N from the end, `-` or nothing."
        )
    first, last = (None if part in ("", "-") else int(part) for part in (start, end))
    return first, last


def with_colours(line: str) -> str:
    """*line* cleaned but for its colours, which end with it."""
    parts = _SGR.split(line)
    cleaned = "".join(part if at % 2 else clean_block(part) for at, part in enumerate(parts))
    return f"{cleaned}\x1b[0m" if len(parts) > 1 else cleaned
