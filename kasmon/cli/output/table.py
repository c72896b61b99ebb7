"""The table of `kasmon ls`: plain text, aligned by cell width, a glyph and a word for each state. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet, by_attention, totals
from kasmon.model.formatting import GLYPHS, age, count_text, mb, unreachable_words
from kasmon.model.permission import RequestKind
from kasmon.model.session import Session
from kasmon.model.session_state import OVER, SessionState
from kasmon.sanitize import clean_line
from kasmon.supervisor.sessions.names import width_cells

HEADS: Final = ("STATE", "NAME", "ID", "AGENT", "MODE", "WAVE", "SINCE", "LAST LINE")
NAME_CELLS: Final = 32
TAGS_CELLS: Final = 24
GAP: Final = "  "


def table(sessions: Sequence[Session], now: float, *, width: int = 0, utf8: bool = True) -> list[str]:
    """Return *sessions*, those that need a person first, as lines under a head; cut to *width* cells unless it is 0.

    Only where one is of another machine, or has tags, there is a column for it.
    """
    sessions = by_attention(sessions)
    rows = [HEADS, *(row(session, now, utf8=utf8) for session in sessions)]
    if any(session.tags for session in sessions):
        tags = ["TAGS", *(cut(clean_line(",".join(each.tags)) or "-", TAGS_CELLS, utf8=utf8) for each in sessions)]
        rows = [(*cells[:-2], tag, *cells[-2:]) for cells, tag in zip(rows, tags, strict=True)]
    if any(session.via for session in sessions):
        machines = ["MACHINE", *(session.via or "-" for session in sessions)]
        rows = [(*cells[:2], machine, *cells[2:]) for cells, machine in zip(rows, machines, strict=True)]
    lines = aligned(rows)
    return [cut(line, width, utf8=utf8) if width else line for line in lines]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return *rows* of cleaned cells, of equal number, as lines with aligned columns; the last column is ragged."""
    *columns, _ = zip(*rows, strict=True)
    widths = [max(map(width_cells, column)) for column in columns]
    return [GAP.join((*map(pad, row[:-1], widths), row[-1])).rstrip() for row in rows]


def row(session: Session, now: float, *, utf8: bool = True) -> tuple[str, ...]:
    """Return one session's cells, cleaned."""
    child = ("└ " if utf8 else "` ") if session.parent else ""
    name = child + clean_line(session.name or session.id)
    return (
        state_words(session, utf8=utf8),
        cut(name, NAME_CELLS, utf8=utf8),
        session.id,
        cut(clean_line(session.agent), 16, utf8=utf8),
        mode_words(session),
        wave_words(session),
        age(now - session.since) if session.since else "-",
        unreachable_words(session.since, now) if session.is_unreachable else clean_line(last_words(session)),
    )


def mode_words(session: Session) -> str:
    """Return its mode with remarks: `tmux (not sdk)` should run structured, see `fallbacks`.

    For an agent in a terminal also the permission mode that it reports: `tmux (auto)`.
    """
    odd = ["not sdk"] * bool(session.fallback) + ["bypassing"] * session.bypassing
    odd += [clean_line(session.permission_mode)] * (session.mode is Mode.TMUX and bool(session.permission_mode))
    return session.mode.value + (f" ({', '.join(odd)})" if odd else "")


def fallbacks(sessions: Iterable[Session]) -> list[str]:
    """Return why sessions run in tmux that should run structured: a line for each that has not ended."""
    return [
        f"{clean_line(session.name or session.id)} runs in {session.mode.value} instead of sdk: "
        f"{clean_line(session.fallback)}."
        for session in sessions
        if session.fallback and session.state not in OVER
    ]


def state_words(session: Session, *, utf8: bool = True) -> str:
    """Return the state as a glyph and words: `◆ asking (permission)`."""
    state = session.state.value
    detail = ""
    if session.state is SessionState.ASKING and session.asking:
        detail = f" ({session.asking.value})"
    elif session.state is SessionState.HIBERNATED:
        name = "hibernated, " if session.is_unviewed else ""
        detail = f" ({name}{mb(session.freed_bytes or 0)} freed)"
    elif session.crashed:
        detail = f" ({ending(session)})"
    if session.has_host_request:
        state, detail = SessionState.ASKING.value, detail or f" ({RequestKind.PERMISSION.value})"
    elif session.is_unviewed:
        state = "finished"
    shape = GLYPHS["crashed" if session.crashed else state][0 if utf8 else 1]
    return f"{shape} {state}{detail}"


def ending(session: Session) -> str:
    """Return how a crashed agent ended; if that is unknown, the last line has the reason."""
    if session.signal is not None or session.exit_code is not None:
        return session.signal or f"exit {session.exit_code}"
    return "failed"


def wave_words(session: Session) -> str:
    """Return `2.1 of 3` for task 1 of wave 2, which has three sessions."""
    if session.wave is None:
        return "-"
    task = "" if session.task is None else f".{session.task}"
    is_of_wave = session.peers and (session.task or 0) <= session.peers  # a plan may number its tasks across waves
    return f"{session.wave}{task}" + (f" of {session.peers}" if is_of_wave else "")


def last_words(session: Session) -> str:
    """Return the most important text about *session*."""
    match SessionState.ASKING if session.has_host_request else session.state:
        case SessionState.UNSURE:
            return session.unsure_why or session.last_line
        case SessionState.LOST:
            return session.end_why or session.last_line
        case SessionState.ENDED if session.crashed and session.end_why:
            return session.end_why
        case SessionState.ASKING if session.requests:
            ask = min(session.requests, key=lambda ask: ask.by_host)  # the agent's come first
            return f"{ask.tool} {ask.title}".strip()
        case SessionState.IDLE if session.turn_ended == "error":
            return f"failed: {session.turn_error}"
        case SessionState.WORKING if session.stuck:
            return f"stuck? {session.stuck_why}"
        case SessionState.WORKING | SessionState.IDLE if session.waits:
            return f"waits: {session.waits}"
        case _:
            return session.last_line


def summary(fleet: Fleet, *, utf8: bool = True) -> str:
    """Return the totals of the fleet as one line."""
    sums = totals(fleet)
    parts = [count_text(len(fleet.sessions), "session")] + [
        f"{count} {state.value}" for state, count in sums.states.items()
    ]
    if sums.finished:
        parts.append(f"{sums.finished} finished, not yet viewed")
    if sums.requests:
        parts.append(f"{count_text(sums.requests, 'pending request')}: `kasmon inbox`")
    return (" · " if utf8 else ", ").join(parts)


def pad(text: str, width: int) -> str:
    """Return *text* padded to *width* cells; a wider one is unchanged."""
    return text + " " * (width - width_cells(text))


def cut(text: str, width: int, *, utf8: bool = True) -> str:
    """Return *text* in at most *width* cells, with a mark if it was cut."""
    if width_cells(text) <= width:
        return text
    space, end = width - 1, 0
    for end, character in enumerate(text):  # noqa: B007 - the position is needed
        space -= width_cells(character)
        if space < 0:
            break
    return text[:end] + ("…" if utf8 else "~")
