"""`kasmon grep`: search the text of all sessions."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.json_objects import answer
from kasmon.errors import UnavailableError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import clock
from kasmon.model.session import Session
from kasmon.model.transcript.search_pattern import SearchPattern
from kasmon.model.transcript.search_text import SearchHit
from kasmon.paths import Paths, places
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.search.search import SessionHits, known, search

SHOWN: Final = 400
"""At most this many characters of a line are printed, around the match."""
NOTHING: Final = 1
"""The exit code without a match, as for grep."""


def grep(
    wanted: str,
    *,
    only: Collection[str],
    ignores_case: bool,
    is_regex: bool,
    context: int,
    most: int | None,
    wants_json: bool,
) -> int:
    """Print the lines that contain *wanted*, of all sessions or *only* these; return the exit code.

    Raises:
        UsageError: if the pattern is invalid.
        NotFoundError: if there is no such session.
        UnavailableError: if the list of sessions cannot be read.
    """
    if context < 0 or (most is not None and most < 1):
        raise UsageError(f"{context if context < 0 else most} is not a valid number of lines.")
    pattern = SearchPattern(wanted, ignores_case=ignores_case, is_regex=is_regex)
    where = places()
    found = search(where, _sessions(where, only), pattern, context=context, most=most)
    count = _print_json(found) if wants_json else _print_hits(found, context)
    if not count and not wants_json:
        note(f"no match for {wanted!r} in {'these sessions' if only else 'any session'}.")
    return 0 if count else NOTHING


def _sessions(where: Paths, only: Collection[str]) -> tuple[Session, ...]:
    try:
        everyone = known(where)
    except OSError as error:
        raise UnavailableError(
            f"cannot read {str(error.filename or where.state)!r}: {error.strerror}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    if not only:
        return everyone
    fleet = Fleet(sessions=everyone)
    ids = {find(fleet, name).id for name in only}
    return tuple(session for session in everyone if session.id in ids)


def _print_hits(found: Iterator[SessionHits], context: int) -> int:
    count = 0
    for each in found:
        if each.problem:
            note(f"{each.session.name} could not be searched: {each.problem}")
            continue
        many = f"{len(each.hits)} {'hit' if len(each.hits) == 1 else 'hits'}{', and older ones' if each.more else ''}"
        say(f"{each.session.name} ({each.session.id}): {many}")
        for hit in each.hits:
            say(*_lines(hit, context))
        count += len(each.hits)
    return count


def _lines(hit: SearchHit, context: int) -> list[str]:
    """Return *hit* as text: the time, kind, position and line."""
    head = f"  {clock(hit.at, day=True)}  {hit.what:<8} {hit.where}:{hit.place}"
    if not context:
        return [f"{head}  {_cut(hit)}"]
    others = [*(f"      {line[:SHOWN]}" for line in hit.before)]
    return [head, *others, f"    > {_cut(hit)}", *(f"      {line[:SHOWN]}" for line in hit.after)]


def _cut(hit: SearchHit) -> str:
    """Return the part of the line that is printed."""
    if len(hit.line) <= SHOWN:
        return hit.line
    first = max(0, min(hit.start - SHOWN // 4, len(hit.line) - SHOWN))
    behind = "…" if first + SHOWN < len(hit.line) else ""
    return f"{'…' if first else ''}{hit.line[first : first + SHOWN]}{behind}"


def _print_json(found: Iterator[SessionHits]) -> int:
    everything = [*found]
    hits = [_object(each.session, hit) for each in everything for hit in each.hits]
    problems = [{"session": each.session.id, "message": each.problem} for each in everything if each.problem]
    print_json(answer(hits=hits, more=[each.session.id for each in everything if each.more], problems=problems))
    return len(hits)


def _object(session: Session, hit: SearchHit) -> dict[str, Any]:
    return {
        "session": session.id,
        "name": session.name,
        "at": hit.at,
        "where": hit.where,
        "place": hit.place,
        "what": hit.what,
        "line": hit.line,
        "start": hit.start,
        "end": hit.end,
        "before": list(hit.before),
        "after": list(hit.after),
    }
