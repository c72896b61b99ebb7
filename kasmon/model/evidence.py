"""Signals of agents that have no protocol, and the state they add up to.

A signal is what one source said last. `judge` weighs them by tier; nothing known, or only sources that cannot know, is
UNSURE with the reason, never idle.
"""

import msgspec

from kasmon.model.permission import AskKind
from kasmon.model.state import SessionState

TIERS = ("program", "registry", "hook", "title", "screen", "output", "launch")
"""Sources, the most trusted first."""

NO_SIGNALS = "no signals for this program yet"
PROGRAM_STATES = {
    "idle": SessionState.IDLE,
    "done": SessionState.IDLE,
    "error": SessionState.IDLE,
    "working": SessionState.WORKING,
    "blocked": SessionState.ASKING,
}
"""What a program means by its own status (OSC 7501, Program Status Protocol)."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """What one source said last, and when."""

    source: str
    value: str
    at: float
    asking: AskKind | None = None
    text: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state that the signals add up to, and on whose word."""

    state: SessionState
    source: str
    why: str = ""
    """Why it is unsure; empty otherwise."""
    asking: AskKind | None = None


def judge(signals: tuple[Signal, ...]) -> Verdict:
    """The state of an agent in a terminal, from the last word of each source. Pure."""
    by_source = {signal.source: signal for signal in signals}
    program = by_source.get("program")
    if program is not None and program.value in PROGRAM_STATES:
        state = PROGRAM_STATES[program.value]
        asking = (program.asking or AskKind.QUESTION) if state is SessionState.ASKING else None
        return Verdict(state=state, source="program", asking=asking)
    output = by_source.get("output")
    if output is not None and output.value == "printing":
        return Verdict(state=SessionState.WORKING, source="output")
    if output is not None or "launch" in by_source:
        return Verdict(state=SessionState.UNSURE, source="output" if output else "launch", why=NO_SIGNALS)
    return Verdict(state=SessionState.STARTING, source="launch")


def heard(signals: tuple[Signal, ...], signal: Signal) -> tuple[Signal, ...]:
    """*signals* with *signal* in the place of what its source said before."""
    return (*(known for known in signals if known.source != signal.source), signal)
