"""The runs that hosts before this one began, as a session's facts tell of them: none is ever run again. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kasmon.model.events import Event, SessionEnded, ToolFinished, ToolStarted
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter, RunResult, SandboxPhase
from kasmon.model.sandbox.state import SandboxState, housed

OUTPUTS: Final = 64
"""What so many of the last runs said is known; of older ones only that they were."""
NEVER: Final = "It did not run: its host ended before it reached the sandbox. Run it again."
NEVER_RAN: Final = RunResult(stderr=NEVER, exit_code=125, hint=NEVER)
"""Of a run that was begun and never reached its sandbox; the only one that may be run later."""


class UnfinishedRun(NamedTuple):
    """A run that was begun, and of which nobody noted an end."""

    interpreter: Interpreter
    title: str
    generation: int
    """Of the sandbox that it was begun in."""


class RunHistory(NamedTuple):
    """What the facts so far say."""

    housing: SandboxState | None
    open: dict[str, UnfinishedRun]
    """By the run's id, oldest first."""
    ended: dict[str, ToolFinished | None]
    """Likewise; None where what it said is not known any more."""
    until: float
    """When the last of the facts was, in seconds since the epoch; 0 where there are none."""

    def was_replaced(self, generation: int) -> bool:
        """Whether something may have run in a sandbox that is gone, now that the one of *generation* is there."""
        known = self.housing
        return known is not None and known.generation != generation and known.phase is not SandboxPhase.CREATING


def past(events: Iterable[Event]) -> RunHistory:
    """What *events*, of one session and oldest first, say of its sandbox and of what ran there."""
    housing: SandboxState | None = None
    begun: dict[str, UnfinishedRun] = {}
    ended: dict[str, ToolFinished | None] = {}
    until = 0.0
    for event in events:
        until = event.at
        housing = housed(housing, event)
        match event:
            case ToolStarted(call=call, tool=tool) if tool in INTERPRETERS:
                begun[call] = UnfinishedRun(tool, event.title, housing.generation if housing else 0)
                ended.pop(call, None)
            case ToolFinished(call=call) if call in begun:
                del begun[call]
                if event.output != NEVER:
                    ended[call] = event
            case SessionEnded():
                ended |= dict.fromkeys(begun)
                begun.clear()
            case _:
                pass
    for call in list(ended)[:-OUTPUTS]:
        ended[call] = None
    return RunHistory(housing, begun, ended, until)
