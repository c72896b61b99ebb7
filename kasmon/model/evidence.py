"""Decides by its signals whether a terminal agent is idle, working, asking or in another state. Start with `judge`.

A signal is the latest report of one source, and since when. `judge` combines them:

| question | answer |
|---|---|
| which source decides | the first of `TIERS` that reports a state; a program that reports its own status beats all |
| a hook, against a newer title or screen | the newer one: no agent has a hook for every ending of a turn |
| two states in one report (`idle\\|asking`) | the next source that reports one of the two |
| a program at rest, against a screen that asks or is limited since | the screen: no program reports its own dialogs |
| a program at rest, against a screen that starts | the screen: a prompt that waits for that is not reported |
| a program's "error" | idle or limited, as its screen shows; idle where no rules know its screen |
| two sources that disagree for `SETTLE_S` | unsure, with both reports |
| "working", and nothing printed for `STILL_S` | unsure |
| a command, or a shell with a command in the foreground, and no other report | working, until it ends |
| a stopped process, or a screen that shows so | unsure: stopped, whatever the other sources reported before |
| nothing present, or no source readable | unsure, with the reason; never idle by absence |
"""

from typing import Final

import msgspec

from kasmon.model.events import SignalSeen
from kasmon.model.permission import RequestKind
from kasmon.model.session_state import SessionState

TIERS: Final = ("process", "program", "registry", "hook", "title", "screen", "fallback", "output", "launch")
"""Sources, most trusted first. `fallback` is the language-independent rule for screens without a rule file."""
STRONG: Final = frozenset({"process", "program"})
"""Sources that no other source can put in doubt."""

STOPPED: Final = "stopped (SIGTSTP)"
"""Why an agent stopped by Ctrl-Z is unsure: it does nothing, and asks nothing, until it is continued."""
SIGSTOP: Final = "SIGSTOP"
"""The process source's text for a stopped agent that still has its terminal: Ctrl-Z was not the cause."""
STOPPED_BY: Final = {"": STOPPED, SIGSTOP: f"stopped ({SIGSTOP})"}
"""The reason by the process source's text; together all reasons of agents that can be continued."""
AT_ONCE: Final = "it exited immediately"
"""The beginning of the reason for an agent that failed right after its start; its output follows."""
NO_SIGNALS: Final = "unknown program: no status detection"
SETTLE_S: Final = 10.0
"""How long two sources may disagree before neither is trusted, in seconds: each has its own small delay."""
HOOK_LAG_S: Final = 2.0
"""A title or screen that changed this long after a hook overrules it, in seconds."""
STILL_S: Final = 60.0
"""A working agent prints something within this time, in seconds: all have an animated indicator."""

PROGRAM_STATES: Final = {
    "idle": frozenset({SessionState.IDLE}),
    "done": frozenset({SessionState.IDLE}),
    "error": frozenset({SessionState.IDLE, SessionState.LIMITED}),
    "working": frozenset({SessionState.WORKING}),
    "blocked": frozenset({SessionState.ASKING}),
}
"""The meaning of a program's own status (OSC 7501, Program Status Protocol). An error ended its turn; only its screen
shows whether that was its usage limit."""
AT_REST: Final = frozenset({SessionState.IDLE, SessionState.LIMITED})
BEYOND: Final = frozenset({SessionState.ASKING, SessionState.LIMITED})
"""States that a program at rest may be in without reporting them: in a dialog of its own, or at its limit."""
STARTING: Final = frozenset({SessionState.STARTING})
WORDS: Final = {
    "starting": SessionState.STARTING,
    "idle": SessionState.IDLE,
    "working": SessionState.WORKING,
    "asking": SessionState.ASKING,
    "limited": SessionState.LIMITED,
    "stopped": SessionState.UNSURE,
    "shell": SessionState.ENDED,
}
"""The values of all other sources, one or several with `|` between; any other value reports no state. `shell`: the
agent is gone, and the pane is back at the shell that started it. `stopped`: see `STOPPED`."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """The latest report of one source, and since when."""

    source: str
    value: str
    at: float
    """When the source first reported this, in seconds since the epoch."""
    asking: RequestKind | None = None
    text: str = ""
    until: float | None = None
    """For `limited`: when the limit ends, in seconds since the epoch, where the source knows it."""
    rule: str = ""
    """The part of the source it is from: a screen's rule, a hook's event; for `explain`."""
    failed: bool = False
    """It reported that a turn ended in an error, which `text` names."""


class OverruledSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that did not decide, and why."""

    signal: Signal
    why: str


class StateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state that follows from the signals, and the source that decided."""

    state: SessionState
    source: str
    why: str = ""
    """Why it is unsure, or how it ended; empty otherwise."""
    asking: RequestKind | None = None
    until: float | None = None
    """When the limit ends."""
    lost: tuple[OverruledSignal, ...] = ()
    """The signals that did not decide, in the order of `TIERS`."""
    recheck_at: float | None = None
    """When the state may change without any new signal, in seconds since the epoch."""


def judge(signals: tuple[Signal, ...], now: float) -> StateVerdict:
    """Return the state of a terminal agent at *now*, from the latest signal of each source. Pure."""
    present = sorted(signals, key=lambda signal: TIERS.index(signal.source) if signal.source in TIERS else len(TIERS))
    lost: list[OverruledSignal] = []
    speaking = [signal for signal in present if _speaks(signal, present, lost)]
    if not speaking:
        return _silent(present, tuple(lost))
    first, others = speaking[0], speaking[1:]
    deciding, states = first, claims(first)
    for other in others:
        if len(states) > 1 and states & claims(other):
            deciding, states = other, states & claims(other)
    against = [other for other in others if not states & claims(other)]
    for other in others:
        if other is not deciding:
            relation = "disagrees" if other in against else "agrees"
            lost.append(OverruledSignal(signal=other, why=f"{relation}, lower priority"))
    if len(states) > 1 and first.source == "program" and not any(signal.source == "screen" for signal in present):
        states = frozenset({SessionState.IDLE})  # its screen cannot be read, so the program is the only source
    if len(states) > 1:
        state_names = " or ".join(sorted(str(state) for state in states))
        return _unsure(first, f"its {first.source} says {state_names}", lost)
    (state,) = states
    doubts = _find_doubtful_times(deciding, state, against, present)
    if due := [(at, why) for at, why in doubts if at <= now]:
        return _unsure(first, min(due)[1], lost)
    asking = _kind(speaking, state)
    return StateVerdict(
        state=state,
        source=deciding.source,
        why=_reason(deciding, state),
        asking=asking,
        until=next((s.until for s in speaking if s.until), None) if state is SessionState.LIMITED else None,
        lost=tuple(lost),
        recheck_at=min((at for at, _ in doubts), default=None),
    )


def claims(signal: Signal) -> frozenset[SessionState]:
    """Return the states that *signal* allows; none if it reports no state."""
    if signal.source == "program":
        return PROGRAM_STATES.get(signal.value, frozenset())
    if signal.source == "output":
        return frozenset({SessionState.WORKING} if signal.value == "printing" else ())
    if signal.source not in TIERS or signal.source == "launch":
        return frozenset()
    if signal.source == "process":
        return frozenset({WORDS[signal.value]} if signal.value in ("shell", "stopped") else ())
    values = signal.value.split("|")
    known = all(value in WORDS and value != "shell" for value in values)
    return frozenset(WORDS[value] for value in values) if known else frozenset()


def replace_signal(signals: tuple[Signal, ...], event: Signal | SignalSeen) -> tuple[Signal, ...]:
    """Return *signals* with that of *event* replacing the previous one of its source."""
    signal = msgspec.convert(event, Signal, from_attributes=True)
    return (*(other for other in signals if other.source != event.source), signal)


def _speaks(signal: Signal, present: list[Signal], lost: list[OverruledSignal]) -> bool:
    """Whether *signal* counts; otherwise it is added to *lost*."""
    claimed_states = claims(signal)
    if not claimed_states:
        lost.append(OverruledSignal(signal=signal, why="it does not report the state"))
        return False
    screen = next((one for one in present if one.source == "screen"), None)
    if screen is not None and screen.value == "stopped" and signal.source not in ("process", "screen"):
        lost.append(OverruledSignal(signal=signal, why="the screen shows that it is suspended"))
        return False
    if signal.source == "program" and claimed_states <= AT_REST:
        if screen is not None and claims(screen) == STARTING:
            lost.append(OverruledSignal(signal=signal, why="the screen shows that it is starting"))
            return False
        later = screen if screen is not None and screen.at >= signal.at else None
        if later is not None and claims(later) and claims(later) <= BEYOND:
            lost.append(OverruledSignal(signal=signal, why="the screen changed after it"))
            return False
    if signal.source == "hook":
        for later in present:
            differs = claims(later) and not claims(later) & claimed_states
            if later.source in ("title", "screen") and differs and later.at >= signal.at + HOOK_LAG_S:
                lost.append(OverruledSignal(signal=signal, why=f"the {later.source} changed after it"))
                return False
    if signal.source == "output" and any(claims(other) for other in present if other.source != "output"):
        lost.append(OverruledSignal(signal=signal, why="other sources know more than its output"))
        return False
    return True


def _find_doubtful_times(
    deciding: Signal, state: SessionState, against: list[Signal], present: list[Signal]
) -> list[tuple[float, str]]:
    """Return from when *state* is doubted, in seconds since the epoch, each with the reason."""
    if deciding.source in STRONG:
        return []
    reason = f"its {deciding.source} says {state}"
    doubts = [
        (max(deciding.at, other.at) + SETTLE_S, f"{reason}, but its {other.source} says {other.value}")
        for other in against
    ]
    output = next((signal for signal in present if signal.source == "output"), None)
    if state is SessionState.WORKING and output is not None and output.value == "quiet":
        quiet_since = max(output.at, deciding.at)
        doubts.append((quiet_since + STILL_S, f"{reason}, but it prints nothing"))
    return doubts


def _silent(present: list[Signal], lost: tuple[OverruledSignal, ...]) -> StateVerdict:
    """Return the verdict where no source reports a state."""
    by_source = {signal.source: signal for signal in present}
    screen, launch, process = (by_source.get(source) for source in ("screen", "launch", "process"))
    if screen is not None and screen.value == "unreadable":
        why = f"the screen could not be read: {screen.text}" if screen.text else "the screen could not be read"
        return StateVerdict(state=SessionState.UNSURE, source="screen", why=why, lost=lost)
    if process is not None and process.value == "command":
        return StateVerdict(state=SessionState.WORKING, source="process", lost=lost)
    if launch is not None and launch.value == "command":
        return StateVerdict(state=SessionState.WORKING, source="launch", lost=lost)
    if not present or set(by_source) <= {"process"}:
        return StateVerdict(state=SessionState.STARTING, source="launch", lost=lost)
    if screen is not None and screen.value == "unclear":
        why = screen.text or "screen not recognised"
        return StateVerdict(state=SessionState.UNSURE, source="screen", why=why, lost=lost)
    if "output" in by_source or "launch" in by_source:
        source = "output" if "output" in by_source else "launch"
        return StateVerdict(state=SessionState.UNSURE, source=source, why=NO_SIGNALS, lost=lost)
    return StateVerdict(state=SessionState.STARTING, source="launch", lost=lost)


def _reason(deciding: Signal, state: SessionState) -> str:
    """Return why the agent is in *state*, where that needs a reason; unsure has only one certain reason, `stopped`."""
    if state is SessionState.UNSURE:
        return STOPPED_BY.get(deciding.text, STOPPED) if deciding.source == "process" else STOPPED
    return deciding.text or "back at the shell" if state is SessionState.ENDED else ""


def _unsure(first: Signal, why: str, lost: list[OverruledSignal]) -> StateVerdict:
    return StateVerdict(state=SessionState.UNSURE, source=first.source, why=why, lost=tuple(lost))


def _kind(speaking: list[Signal], state: SessionState) -> RequestKind | None:
    """Return what is asked, by the first source that names it; an unnamed request is a question.

    Some sources take a plan approval for any other permission: a source that names a plan knows more.
    """
    if state is not SessionState.ASKING:
        return None
    named = [signal.asking for signal in speaking if signal.asking and SessionState.ASKING in claims(signal)]
    kind = next(iter(named), RequestKind.QUESTION)
    return RequestKind.PLAN if kind is RequestKind.PERMISSION and RequestKind.PLAN in named else kind
