"""Signals of agents that have no protocol, and the state they add up to.

A signal is what one source said last, and since when. `judge` weighs them:

| question | answer |
|---|---|
| who is believed | the first of `TIERS` that says something; a program that reports its own status beats everybody |
| a hook, against a newer title or screen | the newer one: no agent has a hook for every ending of a turn |
| two states in one word (`idle\\|asking`) | the next source that says one of the two |
| a program at rest, against a screen that asks or is limited since | the screen: no program reports its own dialogs |
| a program at rest, against a screen that starts | the screen: a prompt that waits for that is not reported |
| a program's "error" | idle or limited, as its screen says; idle where no rules know its screen |
| two sources that disagree for `SETTLE_S` | unsure, with both their words |
| "working", and nothing printed for `STILL_S` | unsure |
| a command, or a shell whose terminal a command has, and no other word | working, until it ends |
| a stopped process, or a screen that says so | unsure: stopped, whatever the other sources said before |
| nothing known, or nobody could look | unsure, with the reason; never idle by absence |
"""

from typing import Final

import msgspec

from kasmon.model.permission import RequestKind
from kasmon.model.session_state import SessionState

TIERS: Final = ("process", "program", "registry", "hook", "title", "screen", "fallback", "output", "launch")
"""Sources, the most trusted first. `fallback` is the rule without words, for screens that no file knows."""
STRONG: Final = frozenset({"process", "program"})
"""Sources that nobody else can make doubtful."""

STOPPED: Final = "stopped (SIGTSTP)"
"""Why an agent is unsure that Ctrl-Z stopped: it does nothing, and asks nothing, until it is continued."""
SIGSTOP: Final = "SIGSTOP"
"""What the process source says of an agent that was stopped and still has its terminal: no Ctrl-Z did that."""
STOPPED_BY: Final = {"": STOPPED, SIGSTOP: f"stopped ({SIGSTOP})"}
"""Likewise, by what the process source says; all reasons of agents that can be continued."""
AT_ONCE: Final = "it exited immediately"
"""How the reason begins why an agent ended that failed as soon as it had begun; what it said follows."""
NO_SIGNALS: Final = "unknown program: no status detection"
SETTLE_S: Final = 10.0
"""So long two sources may disagree before neither is believed, in seconds: each is a little late in its own way."""
HOOK_LAG_S: Final = 2.0
"""A title or screen that changed so long after a hook knows better, in seconds."""
STILL_S: Final = 60.0
"""An agent that works prints something within this time, in seconds: they all have something that turns."""

PROGRAM_STATES: Final = {
    "idle": frozenset({SessionState.IDLE}),
    "done": frozenset({SessionState.IDLE}),
    "error": frozenset({SessionState.IDLE, SessionState.LIMITED}),
    "working": frozenset({SessionState.WORKING}),
    "blocked": frozenset({SessionState.ASKING}),
}
"""What a program means by its own status (OSC 7501, Program Status Protocol). An error ended its turn: that may have
been its usage limit, which only its screen tells."""
AT_REST: Final = frozenset({SessionState.IDLE, SessionState.LIMITED})
BEYOND: Final = frozenset({SessionState.ASKING, SessionState.LIMITED})
"""What a program at rest may be without knowing it: in a dialog of its own, or at its limit."""
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
"""What all other sources say, one or several with `|` between; every other word says nothing. `shell`: the agent is
gone, and the pane is back at the shell that it was started from. `stopped`: see `STOPPED`."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """What one source said last, and since when."""

    source: str
    value: str
    at: float
    """When the source first said this, in seconds since the epoch."""
    asking: RequestKind | None = None
    text: str = ""
    until: float | None = None
    """For `limited`: when the limit ends, in seconds since the epoch, where the source knows it."""
    rule: str = ""
    """What of the source said it: a screen's rule, a hook's event; for `explain`."""
    failed: bool = False
    """It said that a turn ended in an error, which `text` names."""


class OverruledSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that did not decide, and why."""

    signal: Signal
    why: str


class StateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state that the signals add up to, and on whose word."""

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
    """When it may be another one without any new signal, in seconds since the epoch."""


def judge(signals: tuple[Signal, ...], now: float) -> StateVerdict:
    """The state of an agent in a terminal at *now*, from the last word of each source. Pure."""
    known = sorted(signals, key=lambda signal: TIERS.index(signal.source) if signal.source in TIERS else len(TIERS))
    lost: list[OverruledSignal] = []
    speaking = [signal for signal in known if _speaks(signal, known, lost)]
    if not speaking:
        return _silent(known, tuple(lost))
    first, others = speaking[0], speaking[1:]
    deciding, states = first, claims(first)
    for other in others:
        if len(states) > 1 and states & claims(other):
            deciding, states = other, states & claims(other)
    against = [other for other in others if not states & claims(other)]
    lost += [
        OverruledSignal(signal=other, why=_why_lost(other in against)) for other in others if other is not deciding
    ]
    if len(states) > 1 and first.source == "program" and not any(signal.source == "screen" for signal in known):
        states = frozenset({SessionState.IDLE})  # nobody can read its screen, so its word is all there will ever be
    if len(states) > 1:
        words = " or ".join(sorted(str(state) for state in states))
        return _unsure(first, f"its {first.source} says {words}", lost)
    (state,) = states
    doubts = _doubts(deciding, state, against, known)
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
    """The states that *signal* says it may be; none if it says nothing."""
    if signal.source == "program":
        return PROGRAM_STATES.get(signal.value, frozenset())
    if signal.source == "output":
        return frozenset({SessionState.WORKING} if signal.value == "printing" else ())
    if signal.source not in TIERS or signal.source == "launch":
        return frozenset()
    if signal.source == "process":
        return frozenset({WORDS[signal.value]} if signal.value in ("shell", "stopped") else ())
    words = signal.value.split("|")
    known = all(word in WORDS and word != "shell" for word in words)
    return frozenset(WORDS[word] for word in words) if known else frozenset()


def heard(signals: tuple[Signal, ...], signal: Signal) -> tuple[Signal, ...]:
    """*signals* with *signal* in the place of what its source said before."""
    return (*(known for known in signals if known.source != signal.source), signal)


def _speaks(signal: Signal, known: list[Signal], lost: list[OverruledSignal]) -> bool:
    """Whether *signal* has a say; else it is *lost*."""
    said = claims(signal)
    if not said:
        lost.append(OverruledSignal(signal=signal, why="it does not report the state"))
        return False
    screen = next((one for one in known if one.source == "screen"), None)
    if screen is not None and screen.value == "stopped" and signal.source not in ("process", "screen"):
        lost.append(OverruledSignal(signal=signal, why="the screen shows that it is suspended"))
        return False
    if signal.source == "program" and said <= AT_REST:
        if screen is not None and claims(screen) == STARTING:
            lost.append(OverruledSignal(signal=signal, why="the screen shows that it is starting"))
            return False
        later = screen if screen is not None and screen.at >= signal.at else None
        if later is not None and claims(later) and claims(later) <= BEYOND:
            lost.append(OverruledSignal(signal=signal, why="the screen changed after it"))
            return False
    if signal.source == "hook":
        for later in known:
            differs = claims(later) and not claims(later) & said
            if later.source in ("title", "screen") and differs and later.at >= signal.at + HOOK_LAG_S:
                lost.append(OverruledSignal(signal=signal, why=f"the {later.source} changed after it"))
                return False
    if signal.source == "output" and any(claims(other) for other in known if other.source != "output"):
        lost.append(OverruledSignal(signal=signal, why="other sources know more than its output"))
        return False
    return True


def _doubts(
    deciding: Signal, state: SessionState, against: list[Signal], known: list[Signal]
) -> list[tuple[float, str]]:
    """From when on *state* is doubted, in seconds since the epoch, and why."""
    if deciding.source in STRONG:
        return []
    said = f"its {deciding.source} says {state}"
    doubts = [
        (max(deciding.at, other.at) + SETTLE_S, f"{said}, but its {other.source} says {other.value}")
        for other in against
    ]
    output = next((signal for signal in known if signal.source == "output"), None)
    if state is SessionState.WORKING and output is not None and output.value == "quiet":
        quiet_since = max(output.at, deciding.at)
        doubts.append((quiet_since + STILL_S, f"{said}, but it prints nothing"))
    return doubts


def _silent(known: list[Signal], lost: tuple[OverruledSignal, ...]) -> StateVerdict:
    """What is known where no source says anything of the state."""
    by_source = {signal.source: signal for signal in known}
    screen, launch, process = (by_source.get(source) for source in ("screen", "launch", "process"))
    if screen is not None and screen.value == "unreadable":
        why = f"the screen could not be read: {screen.text}" if screen.text else "the screen could not be read"
        return StateVerdict(state=SessionState.UNSURE, source="screen", why=why, lost=lost)
    if process is not None and process.value == "command":
        return StateVerdict(state=SessionState.WORKING, source="process", lost=lost)
    if launch is not None and launch.value == "command":
        return StateVerdict(state=SessionState.WORKING, source="launch", lost=lost)
    if not known or set(by_source) <= {"process"}:
        return StateVerdict(state=SessionState.STARTING, source="launch", lost=lost)
    if screen is not None and screen.value == "unclear":
        why = screen.text or "screen not recognised"
        return StateVerdict(state=SessionState.UNSURE, source="screen", why=why, lost=lost)
    if "output" in by_source or "launch" in by_source:
        source = "output" if "output" in by_source else "launch"
        return StateVerdict(state=SessionState.UNSURE, source=source, why=NO_SIGNALS, lost=lost)
    return StateVerdict(state=SessionState.STARTING, source="launch", lost=lost)


def _reason(deciding: Signal, state: SessionState) -> str:
    """Why the agent is in *state*, where that needs a reason; the only sure word for unsure is `stopped`."""
    if state is SessionState.UNSURE:
        return STOPPED_BY.get(deciding.text, STOPPED) if deciding.source == "process" else STOPPED
    return deciding.text or "back at the shell" if state is SessionState.ENDED else ""


def _unsure(first: Signal, why: str, lost: list[OverruledSignal]) -> StateVerdict:
    return StateVerdict(state=SessionState.UNSURE, source=first.source, why=why, lost=tuple(lost))


def _kind(speaking: list[Signal], state: SessionState) -> RequestKind | None:
    """What is asked, by the first that says so; what nobody names is a question.

    Some take the approval of a plan for any other permission: whoever says that it is a plan knows more.
    """
    if state is not SessionState.ASKING:
        return None
    named = [signal.asking for signal in speaking if signal.asking and SessionState.ASKING in claims(signal)]
    kind = next(iter(named), RequestKind.QUESTION)
    return RequestKind.PLAN if kind is RequestKind.PERMISSION and RequestKind.PLAN in named else kind


def _why_lost(is_against: bool) -> str:
    return "disagrees, lower priority" if is_against else "agrees, lower priority"
