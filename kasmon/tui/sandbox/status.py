"""How a session's sandbox is displayed: its badge, its phase, its remaining time, its usage. Pure.

The badge is the tier's name and a shape. For a jail the shape shows what a probe inside found, and marks a failed
check. A tier with its own kernel, or at a service, has its own shape, coloured once the guest agent proved it.
"""

from typing import Final

from rich.cells import cell_len

from kasmon.model.commands import Mode
from kasmon.model.formatting import age
from kasmon.model.sandbox.policy import MIB, REMEMBERING, SandboxPhase
from kasmon.model.sandbox.state import BEGINNING, SandboxState
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.sanitize import clean_line
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, mode_label, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

BAR: Final = 8
"""Cells of the bar that shows the used share."""
TIGHT: Final = 0.75
FULL: Final = 0.9
"""From these shares on a bar warns."""
SLEEPS_SOON_S: Final = 60.0
ENDS_SOON_S: Final = 300.0
"""A row shows the next change only if it comes this soon, in seconds; the panel always does."""
MOVING: Final = {
    SandboxPhase.CREATING: "creating sandbox",
    SandboxPhase.PAUSING: "pausing",
    SandboxPhase.PERSISTING: "saving state",
    SandboxPhase.RESUMING: "resuming",
    SandboxPhase.HEALING: "recovering sandbox",
    SandboxPhase.EXPIRED: "removing sandbox",
}
"""Transitional phases, as a row displays them."""
ON_DISK: Final = {SandboxPhase.PAUSING: "writing memory to disk", SandboxPhase.RESUMING: "reading memory from disk"}
"""Transitional phases whose memory is on disk, or is to be."""
SHORT: Final = {"microvm": "vm"}
"""Short names of tiers for narrow columns."""
WALLED: Final = {"microvm": "own kernel", "e2b": "at the service"}
"""Tiers with a kernel other than this machine's, and what isolates them."""
LONGEST_MODE: Final = 22
"""The maximum width of the mode column, in cells: `tmux bypassPermissions`."""
LOST_S: Final = 3600.0
"""How long a session's panel shows a loss, in seconds; the sandbox screen always does."""
RESTING: Final = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
"""Agent states in which the idle clock of its sandbox runs."""
BROKEN: Final = "not confined as expected"
ROOMY: Final = 116
"""From this width on the panel has bars."""


def badge(session: Session, look: ThemeStyles, space: int = 12) -> list[StyledSpan]:
    """Return the tier in at most *space* cells, with a shape for whether it is verified; empty without a sandbox."""
    if not session.sandbox:
        return []
    mark, role = _proof(session)
    tier = clean_line(session.sandbox)
    label = tier if len(tier) < space else SHORT.get(tier, tier)
    return [(look.cut(label, space - 1), "faint"), (look.mark(mark), role)]


def mode_cells(session: Session) -> int:
    """Return how many cells the whole mode column of it takes; 0 if it is too long."""
    if session.sandbox:
        return len(session.sandbox) + 1
    cells = cell_len(mode_label(session))
    return cells if cells <= LONGEST_MODE else 0


def can_sleep(session: Session) -> bool:
    """Whether its sandbox exists and can be paused; that of an agent only while it is idle."""
    if session.sandbox_state is None or session.sandbox_state.is_asleep or session.state not in ALIVE:
        return False
    return session.mode is Mode.INTERPRETER or session.state is SessionState.IDLE


def can_pause(session: Session) -> bool:
    """Whether its sandbox exists and can be paused to disk, and is not yet."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None or session.state not in ALIVE or session.mode is not Mode.INTERPRETER:
        return False
    return session.sandbox in REMEMBERING and not (sandbox_state.is_asleep and not sandbox_state.held)


def sleeps_on_disk(session: Session) -> bool:
    """Whether its memory is on disk, or at the service, and none of its processes run."""
    sandbox_state = session.sandbox_state
    return (
        sandbox_state is not None
        and sandbox_state.is_asleep
        and not sandbox_state.held
        and session.sandbox in REMEMBERING
    )


def proof_words(session: Session) -> str:
    seen = session.sandbox_state.confinement if session.sandbox_state is not None else None
    if session.sandbox in WALLED and (seen is None or seen.ok):
        return f"{WALLED[session.sandbox]}{', verified' if seen is not None else ''}"
    if seen is None:
        return "not verified yet" if session.state in ALIVE else "not verified"
    return "verified" if seen.ok else f"{BROKEN}: {mismatches(session)}"


def is_broken(session: Session) -> bool:
    """Whether a probe inside found a failed check."""
    seen = session.sandbox_state.confinement if session.sandbox_state is not None else None
    return seen is not None and not seen.ok


def mismatches(session: Session) -> str:
    """Return the failed checks, in words."""
    seen = session.sandbox_state.confinement if session.sandbox_state is not None else None
    return ", ".join(map(clean_line, seen.mismatches)) if seen is not None and seen.mismatches else "no details"


def phase_words(sandbox_state: SandboxState, now: float) -> str:
    """Return the phase; for a transitional one with its duration: `writing memory to disk, 3s`."""
    if not is_moving(sandbox_state):
        return phase_label(sandbox_state)
    return ", ".join(part for part in (_describe_transition(sandbox_state), _lasts(sandbox_state, now)) if part)


def phases(session: Session, now: float) -> list[str]:
    """Return the sandbox's phase and its next steps; none if its creation failed, which its state says."""
    if session.sandbox_state is None or session.has_failed_to_start:
        return []
    return [phase_words(session.sandbox_state, now), *to_come(session, now)]


def phase_label(sandbox_state: SandboxState) -> str:
    """Return the phase, and where its memory is while it is paused: `paused in RAM`."""
    if sandbox_state.phase is not SandboxPhase.PAUSED:
        return sandbox_state.phase.value
    if sandbox_state.held:
        return "paused in RAM"
    kept = "at the service" if sandbox_state.tier == "e2b" else "on disk"
    return f"paused {kept}" if sandbox_state.tier in REMEMBERING else "paused"


def is_moving(sandbox_state: SandboxState) -> bool:
    """Whether it is in transition to another phase."""
    return sandbox_state.phase in MOVING and (sandbox_state.is_intended or sandbox_state.phase in BEGINNING)


def lost_words(session: Session, now: float) -> str:
    """Return the last loss, and when it was; empty if there was none."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None or not sandbox_state.lost:
        return ""
    when = f"{age(now - sandbox_state.lost_at)} ago: " if sandbox_state.lost_at else ""
    return f"{when}{clean_line(sandbox_state.lost)}"


def _describe_transition(sandbox_state: SandboxState) -> str:
    on_disk = not sandbox_state.held and sandbox_state.tier in REMEMBERING
    return ON_DISK.get(sandbox_state.phase, MOVING[sandbox_state.phase]) if on_disk else MOVING[sandbox_state.phase]


def _lasts(sandbox_state: SandboxState, now: float) -> str:
    """Return how long it has been in transition; empty at first."""
    return age(now - sandbox_state.phase_at) if sandbox_state.phase_at and now - sandbox_state.phase_at >= 1.0 else ""


def to_come(session: Session, now: float) -> tuple[str, ...]:
    """Return the next changes if unused: `pauses in 12m`, then `pauses to disk in 27m` or `expires in 9m`.

    It pauses if its memory is kept then, and expires if it ends.
    """
    sandbox_state = session.sandbox_state
    if sandbox_state is None or session.state not in ALIVE or session.in_turn:
        return ()
    if session.mode is not Mode.INTERPRETER and session.state not in RESTING:
        return ()
    spans = []
    if sandbox_state.standby_at is not None and sandbox_state.phase is SandboxPhase.RUNNING:
        spans.append(f"pauses in {age(sandbox_state.standby_at - now)}")
    if sandbox_state.pause_at is not None and not sleeps_on_disk(session):
        spans.append(
            f"{'pauses' if sandbox_state.tier == 'e2b' else 'pauses to disk'} in {age(sandbox_state.pause_at - now)}"
        )
    elif sandbox_state.expires_at is not None:
        spans.append(f"expires in {age(sandbox_state.expires_at - now)}")
    return tuple(spans)


def row_words(session: Session, now: float) -> list[StyledSpan]:
    """Return the sandbox's part at the start of a row; empty without a problem or a near change."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None:
        return []
    if is_broken(session) and session.state in ALIVE:
        how = "" if session.state is SessionState.ASKING else f": {mismatches(session)}"
        return [(f"not confined{how}  ", "bad.bold")]
    if is_moving(sandbox_state) and session.state is not SessionState.ENDED:
        return [
            (f"{_describe_transition(sandbox_state)}  ", "info"),
            (f"{lasts}  " if (lasts := _lasts(sandbox_state, now)) else "", "faint"),
        ]
    coming = to_come(session, now)
    if coming and _compute_rest(sandbox_state.expires_at, now) <= ENDS_SOON_S:
        return [(f"expires in {age(_compute_rest(sandbox_state.expires_at, now))}  ", "warn")]
    if coming and _compute_rest(sandbox_state.pause_at, now) <= ENDS_SOON_S:
        return [(f"{coming[-1]}  ", "faint")]
    sleeps_soon = (
        sandbox_state.phase is SandboxPhase.RUNNING and _compute_rest(sandbox_state.standby_at, now) <= SLEEPS_SOON_S
    )
    return [(f"{coming[0]}  ", "faint")] if coming and (sleeps_soon or sandbox_state.is_asleep) else []


def panel(session: Session, look: ThemeStyles, now: float, width: int) -> list[DrawnLine]:
    """Return the lines about its sandbox in the session's own panel; empty if it has none."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None:
        return []
    dot = f" {look.mark('dot')} "
    about = "".join(f"{dot}{phase_text}" for phase_text in phases(session, now))
    left: list[StyledSpan] = [(" ", "text"), *badge(session, look), (about, "soft")]
    right = meters(session, look, bars=width >= ROOMY)
    lines = [DrawnLine(tuple(left), tuple(right))]
    if right and width_of(left) + width_of(right) + 2 > width:
        lines = [DrawnLine(tuple(left)), DrawnLine(((" ", "text"), *right))]
    if is_broken(session):
        lines.append(DrawnLine(((f" {look.mark('breach')} {BROKEN}: {mismatches(session)}", "bad.bold"),)))
    elif sandbox_state.lost_at and now - sandbox_state.lost_at < LOST_S:
        lines.append(DrawnLine(((" ! ", "warn.bold"), (f"lost {lost_words(session, now)}", "warn"))))
    return lines


def meters(session: Session, look: ThemeStyles, *, bars: bool = True, processes: bool = False) -> list[StyledSpan]:
    """Return memory and disk, used and allowed; empty if they were not measured."""
    usage = session.sandbox_state.usage if session.sandbox_state is not None else None
    if usage is None:
        return []
    spans = _meter("memory", usage.memory_bytes, usage.memory_allowed, look, bars=bars)
    spans += [("   ", "text"), *_meter("disk", usage.disk_bytes, usage.disk_allowed, look, bars=bars)]
    if processes and usage.processes:
        most = f" of {usage.processes_allowed}" if usage.processes_allowed else ""
        spans += [("   ", "text"), ("processes ", "faint"), (str(usage.processes), "text"), (most, "faint")]
    return [*spans, (" ", "text")]


def amount(size_bytes: int) -> str:
    """Return a size in at most eight characters: `12 KiB`, `0.4 MiB`, `212 MiB`, `1.5 GiB`."""
    size = size_bytes / MIB
    if size >= 1024:
        return f"{size / 1024:.0f} GiB" if size >= 10240 or size % 1024 == 0 else f"{size / 1024:.1f} GiB"
    if 0 < size < 0.1:
        return f"{size_bytes / 1024:.0f} KiB" if size_bytes >= 1024 else f"{size_bytes} B"
    return f"{size:.0f} MiB" if size >= 10 or size == 0 else f"{size:.1f} MiB"


def _meter(label: str, used: int, allowed: int, look: ThemeStyles, *, bars: bool) -> list[StyledSpan]:
    share = min(used / allowed, 1.0) if allowed else 0.0
    role = "bad" if share >= FULL else "warn" if share >= TIGHT else "info"
    shapes = ("━", "─") if look.utf8 else ("#", "-")
    full = min(max(round(share * BAR), 1 if used else 0), BAR)
    bar: list[StyledSpan] = (
        [(shapes[0] * full, role), (f"{shapes[1] * (BAR - full)} ", "line")] if bars and allowed else []
    )
    amount_text = amount(used)
    if allowed:
        of = f" of {amount(allowed)}"
        unit = amount_text[-4:]
        amount_text = amount_text.removesuffix(unit) if of.endswith(unit) else amount_text
        return [
            (f"{label} ", "faint"),
            *bar,
            (amount_text, f"{role}.bold" if share >= TIGHT else "text"),
            (of, "faint"),
        ]
    return [(f"{label} ", "faint"), (amount_text, "text")]


def _proof(session: Session) -> tuple[str, str]:
    seen = session.sandbox_state.confinement if session.sandbox_state is not None else None
    if session.sandbox in WALLED and (seen is None or seen.ok):
        return ("remote" if session.sandbox == "e2b" else "walled"), "info" if seen is None else "good"
    if seen is None:
        return "unproven", "faint"
    return ("proven", "good") if seen.ok else ("breach", "bad.bold")


def _compute_rest(at: float | None, now: float) -> float:
    return float("inf") if at is None else at - now
