"""`kasmon grep`: search the text of all sessions."""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.errors import UnavailableError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import clock
from kasmon.model.session import Session
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.model.transcript.search.text import SearchHit
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.search.search import SessionHits, list_sessions, search

SHOWN: Final = 400
"""At most this many characters of a line are printed, around the match."""
NOTHING: Final = 1
"""The exit code without a match, as for grep."""


def grep(
    pattern: Annotated[str, Arg("Text to search for, literally.", hyphen=True)],
    /,
    *,
    session: Annotated[
        list[str] | None,
        Arg("Search only this session (id, exact name or id prefix). May be repeated.", completer="sessions"),
    ] = None,
    ignore_case: Annotated[bool, Arg("Case-insensitive.", ("--ignore-case", "-i"))] = False,
    regex: Annotated[bool, Arg("Treat the pattern as a Python regular expression.", ("--regex", "-E"))] = False,
    context: Annotated[
        int, Arg("Lines of context around each match (0: the matching line only).", ("--context", "-C"))
    ] = 1,
    max_: Annotated[int | None, Arg("Max matches per session (newest first).", ("--max", "-m"))] = None,
    wants_json: Json = False,
) -> int:
    """Search all transcripts and terminal output.

    Exit code 1 if there is no match.
    """
    if context < 0 or (max_ is not None and max_ < 1):
        raise UsageError(f"{context if context < 0 else max_} is not a valid number of lines.")
    wanted = SearchPattern(pattern, ignores_case=ignore_case, is_regex=regex)
    where = user_paths()
    found = search(where, _sessions(where, session or ()), wanted, context=context, most=max_)
    count = _print_json(found) if wants_json else _print_hits(found, context)
    if not count and not wants_json:
        note(f"no match for {pattern!r} in {'these sessions' if session else 'any session'}.")
    return 0 if count else NOTHING


def _sessions(where: Paths, only: Collection[str]) -> tuple[Session, ...]:
    try:
        everyone = list_sessions(where)
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


def _print_hits(results: Iterator[SessionHits], context: int) -> int:
    count = 0
    for each in results:
        if each.problem:
            note(f"{each.session.label} could not be searched: {each.problem}")
            continue
        many = f"{len(each.hits)} {'hit' if len(each.hits) == 1 else 'hits'}{', and older ones' if each.more else ''}"
        say(f"{each.session.label} ({each.session.id}): {many}")
        for hit in each.hits:
            say(*_lines(hit, context))
        count += len(each.hits)
    return count


def _lines(hit: SearchHit, context: int) -> list[str]:
    """Return *hit* as text: the time, kind, position and line."""
    head = f"  {clock(hit.at, day=True)}  {hit.what:<8} {hit.source}:{hit.position}"
    if not context:
        return [f"{head}  {_cut(hit)}"]
    others = [*(f"      {line[:SHOWN]}" for line in hit.before)]
    return [head, *others, f"    > {_cut(hit)}", *(f"      {line[:SHOWN]}" for line in hit.after)]


def _cut(hit: SearchHit) -> str:
    if len(hit.line) <= SHOWN:
        return hit.line
    first = max(0, min(hit.start - SHOWN // 4, len(hit.line) - SHOWN))
    behind = "…" if first + SHOWN < len(hit.line) else ""
    return f"{'…' if first else ''}{hit.line[first : first + SHOWN]}{behind}"


def _print_json(results: Iterator[SessionHits]) -> int:
    everything = [*results]
    hits = [_object(each.session, hit) for each in everything for hit in each.hits]
    problems = [{"session": each.session.id, "message": each.problem} for each in everything if each.problem]
    print_json(hits=hits, more=[each.session.id for each in everything if each.more], problems=problems)
    return len(hits)


def _object(session: Session, hit: SearchHit) -> dict[str, Any]:
    return {
        "session": session.id,
        "name": session.name,
        "machine": session.machine,
        "at": hit.at,
        "where": hit.source,
        "place": hit.position,
        "what": hit.what,
        "line": hit.line,
        "start": hit.start,
        "end": hit.end,
        "before": list(hit.before),
        "after": list(hit.after),
    }
