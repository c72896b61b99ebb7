"""How a session's sandbox looks: its badge, its phase, how long it has left, what it uses. Pure.

The badge is the tier's word and a shape, by what a probe inside found; a sandbox that is not as it should be says so.
"""

from typing import Final

from kasmon.clean import clean_line
from kasmon.model.command import Mode
from kasmon.model.housing import Housing
from kasmon.model.sandbox import MIB, Phase
from kasmon.model.session import Session
from kasmon.model.state import ALIVE, SessionState
from kasmon.tui.lines import DrawnLine
from kasmon.tui.look import Look, Span, age, width_of

BAR: Final = 8
"""Cells of the bar that shows how much of what is allowed is used."""
TIGHT: Final = 0.75
FULL: Final = 0.9
"""From these shares on a bar warns."""
SLEEPS_SOON_S: Final = 60.0
ENDS_SOON_S: Final = 300.0
"""A row tells what is to come only when it comes so soon, in seconds; the panel always does."""
MOVING: Final = {
    Phase.CREATING: "making its sandbox",
    Phase.PAUSING: "falling asleep",
    Phase.PERSISTING: "keeping what it has",
    Phase.RESUMING: "waking up",
    Phase.HEALING: "healing",
    Phase.EXPIRED: "ending its sandbox",
}
"""Phases on the way to one, as a row tells them."""
BROKEN: Final = "not confined as it should be"
ROOMY: Final = 116
"""From this width on the panel has bars."""


def badge(session: Session, look: Look, room: int = 12) -> list[Span]:
    """What confines it, in at most *room* cells, and by a shape whether that was proven; nothing where nothing does."""
    if not session.sandbox:
        return []
    mark, role = _proof(session)
    return [(look.cut(clean_line(session.sandbox), room - 1), "faint"), (look.mark(mark), role)]


def can_sleep(session: Session) -> bool:
    """Whether its sandbox is there and can be put to sleep; that of an agent only while it is idle."""
    if session.housing is None or session.housing.is_asleep or session.state not in ALIVE:
        return False
    return session.mode is Mode.INTERPRETER or session.state is SessionState.IDLE


def proof_words(session: Session) -> str:
    """The same in words."""
    seen = session.housing.confinement if session.housing is not None else None
    if seen is None:
        return "not proven yet" if session.state in ALIVE else "not proven"
    return "proven from within" if seen.ok else f"{BROKEN}: {mismatches(session)}"


def is_broken(session: Session) -> bool:
    """Whether a probe inside found what should not be."""
    seen = session.housing.confinement if session.housing is not None else None
    return seen is not None and not seen.ok


def mismatches(session: Session) -> str:
    """What is not as it should be, in words."""
    seen = session.housing.confinement if session.housing is not None else None
    return ", ".join(map(clean_line, seen.mismatches)) if seen is not None and seen.mismatches else "nobody knows how"


def phase_words(housing: Housing) -> str:
    """The phase, and what sleep holds: `paused, its memory held`."""
    word = housing.phase.value
    return f"{word}, its memory held" if housing.held and housing.phase is Phase.PAUSED else word


def to_come(session: Session, now: float) -> tuple[str, ...]:
    """What comes next by the clock if nobody uses it: `sleeps in 12m`, `expires in 27m`; in seconds only when near."""
    housing = session.housing
    if housing is None or session.state not in ALIVE or session.in_turn:
        return ()
    if session.mode is not Mode.INTERPRETER and session.state not in (SessionState.IDLE, SessionState.STANDBY):
        return ()
    told = []
    if housing.standby_at is not None and housing.phase is Phase.RUNNING:
        told.append(f"sleeps in {age(housing.standby_at - now)}")
    if housing.expires_at is not None:
        told.append(f"expires in {age(housing.expires_at - now)}")
    return tuple(told)


def row_words(session: Session, now: float) -> list[Span]:
    """What a row says of its sandbox before all else; nothing while all is well and nothing is near."""
    housing = session.housing
    if housing is None:
        return []
    if is_broken(session) and session.state in ALIVE:
        how = "" if session.state is SessionState.ASKING else f": {mismatches(session)}"
        return [(f"not confined{how}  ", "bad.bold")]
    if housing.is_intended and housing.phase in MOVING and session.state is not SessionState.ENDED:
        return [(f"{MOVING[housing.phase]}  ", "info")]
    coming = to_come(session, now)
    if coming and _left(housing.expires_at, now) <= ENDS_SOON_S:
        return [(f"{coming[-1]}  ", "warn")]
    sleeps_soon = housing.phase is Phase.RUNNING and _left(housing.standby_at, now) <= SLEEPS_SOON_S
    return [(f"{coming[0]}  ", "faint")] if coming and (sleeps_soon or housing.is_asleep) else []


def panel(session: Session, look: Look, now: float, width: int) -> list[DrawnLine]:
    """The lines about its sandbox in the session's own panel; none where it has none."""
    housing = session.housing
    if housing is None:
        return []
    dot = f" {look.mark('dot')} "
    about = [phase_words(housing), *to_come(session, now)]
    left: list[Span] = [(" ", "text"), *badge(session, look), (f"{dot}{dot.join(about)}", "soft")]
    right = meters(session, look, bars=width >= ROOMY)
    lines = [DrawnLine(tuple(left), tuple(right))]
    if right and width_of(left) + width_of(right) + 2 > width:
        lines = [DrawnLine(tuple(left)), DrawnLine(((" ", "text"), *right))]
    if is_broken(session):
        lines.append(DrawnLine(((f" {look.mark('breach')} {BROKEN}: {mismatches(session)}", "bad.bold"),)))
    return lines


def meters(session: Session, look: Look, *, bars: bool = True, processes: bool = False) -> list[Span]:
    """Memory and disk, used and allowed; nothing where nobody has measured."""
    usage = session.housing.usage if session.housing is not None else None
    if usage is None:
        return []
    spans = _meter("memory", usage.memory_bytes, usage.memory_allowed, look, bars=bars)
    spans += [("   ", "text"), *_meter("disk", usage.disk_bytes, usage.disk_allowed, look, bars=bars)]
    if processes and usage.processes:
        most = f" of {usage.processes_allowed}" if usage.processes_allowed else ""
        spans += [("   ", "text"), ("processes ", "faint"), (str(usage.processes), "text"), (most, "faint")]
    return [*spans, (" ", "text")]


def amount(size_bytes: int) -> str:
    """A size in at most eight characters: `12 KiB`, `0.4 MiB`, `212 MiB`, `1.5 GiB`."""
    size = size_bytes / MIB
    if size >= 1024:
        return f"{size / 1024:.0f} GiB" if size >= 10240 or size % 1024 == 0 else f"{size / 1024:.1f} GiB"
    if 0 < size < 0.1:
        return f"{size_bytes / 1024:.0f} KiB" if size_bytes >= 1024 else f"{size_bytes} B"
    return f"{size:.0f} MiB" if size >= 10 or size == 0 else f"{size:.1f} MiB"


def _meter(word: str, used: int, allowed: int, look: Look, *, bars: bool) -> list[Span]:
    share = min(used / allowed, 1.0) if allowed else 0.0
    role = "bad" if share >= FULL else "warn" if share >= TIGHT else "info"
    shapes = ("━", "─") if look.utf8 else ("#", "-")
    full = min(max(round(share * BAR), 1 if used else 0), BAR)
    bar: list[Span] = [(shapes[0] * full, role), (f"{shapes[1] * (BAR - full)} ", "line")] if bars and allowed else []
    told = amount(used)
    if allowed:
        of = f" of {amount(allowed)}"
        unit = told[-4:]
        told = told.removesuffix(unit) if of.endswith(unit) else told
        return [(f"{word} ", "faint"), *bar, (told, f"{role}.bold" if share >= TIGHT else "text"), (of, "faint")]
    return [(f"{word} ", "faint"), (told, "text")]


def _proof(session: Session) -> tuple[str, str]:
    """The shape of the proof, and its role."""
    seen = session.housing.confinement if session.housing is not None else None
    if seen is None:
        return "unproven", "faint"
    return ("proven", "good") if seen.ok else ("breach", "bad.bold")


def _left(at: float | None, now: float) -> float:
    return float("inf") if at is None else at - now
