"""How a session's sandbox looks: its badge, its phase, how long it has left, what it uses. Pure.

The badge is the tier's word and a shape: of a jail by what a probe inside found, and one that is not as it should be
says so; a tier with a kernel of its own, or at a service, has its own shape, coloured once the agent inside proved it.
"""

from typing import Final

from kasmon.clean import clean_line
from kasmon.model.command import Mode
from kasmon.model.housing import BEGINNING, Housing
from kasmon.model.sandbox import MIB, REMEMBERING, Phase
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
ON_DISK: Final = {Phase.PAUSING: "writing its memory to disk", Phase.RESUMING: "reading its memory from disk"}
"""Those whose memory is on disk, or is to be."""
SHORT: Final = {"microvm": "vm", "gvisor": "gvis"}
"""The words of tiers where there is no room for all of one."""
WALLED: Final = {"microvm": "a kernel of its own", "gvisor": "a kernel in user space", "e2b": "at the service"}
"""Tiers whose kernel is not this machine's, and what stands between them and that."""
LOST_S: Final = 3600.0
"""So long a session's panel tells of what was lost; the screen of its sandbox always does."""
RESTING: Final = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
"""States of an agent in which the clock runs for its sandbox."""
BROKEN: Final = "not confined as it should be"
ROOMY: Final = 116
"""From this width on the panel has bars."""


def badge(session: Session, look: Look, room: int = 12) -> list[Span]:
    """What confines it, in at most *room* cells, and by a shape whether that was proven; nothing where nothing does."""
    if not session.sandbox:
        return []
    mark, role = _proof(session)
    tier = clean_line(session.sandbox)
    word = tier if len(tier) < room else SHORT.get(tier, tier)
    return [(look.cut(word, room - 1), "faint"), (look.mark(mark), role)]


def badge_cells(session: Session) -> int:
    """How many cells all of its badge takes; 0 where it has none."""
    return len(session.sandbox) + 1 if session.sandbox else 0


def can_sleep(session: Session) -> bool:
    """Whether its sandbox is there and can be put to sleep; that of an agent only while it is idle."""
    if session.housing is None or session.housing.is_asleep or session.state not in ALIVE:
        return False
    return session.mode is Mode.INTERPRETER or session.state is SessionState.IDLE


def can_pause(session: Session) -> bool:
    """Whether its sandbox is there and can be put to sleep with its memory on disk, which it does not do yet."""
    housing = session.housing
    if housing is None or session.state not in ALIVE or session.mode is not Mode.INTERPRETER:
        return False
    return session.sandbox in REMEMBERING and not (housing.is_asleep and not housing.held)


def sleeps_on_disk(session: Session) -> bool:
    """Whether its memory is on disk, or at the service, and nothing of it runs."""
    housing = session.housing
    return housing is not None and housing.is_asleep and not housing.held and session.sandbox in REMEMBERING


def proof_words(session: Session) -> str:
    """The same in words."""
    seen = session.housing.confinement if session.housing is not None else None
    if session.sandbox in WALLED and (seen is None or seen.ok):
        return f"{WALLED[session.sandbox]}{', proven from within' if seen is not None else ''}"
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


def phase_words(housing: Housing, now: float) -> str:
    """The phase, what that is about, and for how long it moves: `pausing: writing its memory to disk, 3s`."""
    if not is_moving(housing):
        return phase_word(housing)
    phase, about = housing.phase.value, _moving(housing)
    told = phase if about == phase else f"{phase}: {about}"
    return ", ".join(part for part in (told, _lasts(housing, now)) if part)


def phase_word(housing: Housing) -> str:
    """The phase, and where its memory is while it sleeps: `paused, its memory held`."""
    if housing.phase is not Phase.PAUSED:
        return housing.phase.value
    if housing.held:
        return "paused, its memory held"
    kept = "at the service" if housing.tier == "e2b" else "on disk"
    return f"paused, its memory {kept}" if housing.tier in REMEMBERING else "paused"


def is_moving(housing: Housing) -> bool:
    """Whether it is on its way to another phase."""
    return housing.phase in MOVING and (housing.is_intended or housing.phase in BEGINNING)


def lost_words(session: Session, now: float) -> str:
    """What was lost the last time that something was, and when; empty where nothing ever was."""
    housing = session.housing
    if housing is None or not housing.lost:
        return ""
    when = f"{age(now - housing.lost_at)} ago: " if housing.lost_at else ""
    return f"{when}{clean_line(housing.lost)}"


def _moving(housing: Housing) -> str:
    on_disk = not housing.held and housing.tier in REMEMBERING
    return ON_DISK.get(housing.phase, MOVING[housing.phase]) if on_disk else MOVING[housing.phase]


def _lasts(housing: Housing, now: float) -> str:
    """For how long it has been on its way; empty at first."""
    return age(now - housing.phase_at) if housing.phase_at and now - housing.phase_at >= 1.0 else ""


def to_come(session: Session, now: float) -> tuple[str, ...]:
    """What comes next by the clock if nobody uses it: `sleeps in 12m`, then `pauses in 27m` or `expires in 27m`.

    It is paused where its memory is kept then, and expires where it ends.
    """
    housing = session.housing
    if housing is None or session.state not in ALIVE or session.in_turn:
        return ()
    if session.mode is not Mode.INTERPRETER and session.state not in RESTING:
        return ()
    told = []
    if housing.standby_at is not None and housing.phase is Phase.RUNNING:
        told.append(f"sleeps in {age(housing.standby_at - now)}")
    if housing.pause_at is not None and not sleeps_on_disk(session):
        told.append(f"pauses in {age(housing.pause_at - now)}")
    elif housing.expires_at is not None:
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
    if is_moving(housing) and session.state is not SessionState.ENDED:
        return [(f"{_moving(housing)}  ", "info"), (f"{lasts}  " if (lasts := _lasts(housing, now)) else "", "faint")]
    coming = to_come(session, now)
    if coming and _left(housing.expires_at, now) <= ENDS_SOON_S:
        return [(f"expires in {age(_left(housing.expires_at, now))}  ", "warn")]
    if coming and _left(housing.pause_at, now) <= ENDS_SOON_S:
        return [(f"{coming[-1]}  ", "faint")]
    sleeps_soon = housing.phase is Phase.RUNNING and _left(housing.standby_at, now) <= SLEEPS_SOON_S
    return [(f"{coming[0]}  ", "faint")] if coming and (sleeps_soon or housing.is_asleep) else []


def panel(session: Session, look: Look, now: float, width: int) -> list[DrawnLine]:
    """The lines about its sandbox in the session's own panel; none where it has none."""
    housing = session.housing
    if housing is None:
        return []
    dot = f" {look.mark('dot')} "
    about = [phase_words(housing, now), *to_come(session, now)]
    left: list[Span] = [(" ", "text"), *badge(session, look), (f"{dot}{dot.join(about)}", "soft")]
    right = meters(session, look, bars=width >= ROOMY)
    lines = [DrawnLine(tuple(left), tuple(right))]
    if right and width_of(left) + width_of(right) + 2 > width:
        lines = [DrawnLine(tuple(left)), DrawnLine(((" ", "text"), *right))]
    if is_broken(session):
        lines.append(DrawnLine(((f" {look.mark('breach')} {BROKEN}: {mismatches(session)}", "bad.bold"),)))
    elif housing.lost_at and now - housing.lost_at < LOST_S:
        lines.append(DrawnLine(((" ! ", "warn.bold"), (f"lost {lost_words(session, now)}", "warn"))))
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
    if session.sandbox in WALLED and (seen is None or seen.ok):
        return ("remote" if session.sandbox == "e2b" else "walled"), "info" if seen is None else "good"
    if seen is None:
        return "unproven", "faint"
    return ("proven", "good") if seen.ok else ("breach", "bad.bold")


def _left(at: float | None, now: float) -> float:
    return float("inf") if at is None else at - now
