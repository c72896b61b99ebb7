"""The runs that earlier hosts began, according to a session's events: none is ever run again. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kasmon.model.events import Event, SessionEnded, ToolFinished, ToolStarted
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter, RunResult, SandboxPhase
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event

OUTPUTS: Final = 64
"""The output of so many of the last runs is retained; of older ones only that they ran."""
NEVER: Final = "It did not run: its host ended before it reached the sandbox. Run it again."
NEVER_RAN: Final = RunResult(stderr=NEVER, exit_code=125, hint=NEVER)
"""The result of a run that was begun and never reached its sandbox; the only one that may be run later."""


class UnfinishedRun(NamedTuple):
    """A run that was begun and has no logged end."""

    interpreter: Interpreter
    title: str
    generation: int
    """The generation of the sandbox that it was begun in."""


class RunHistory(NamedTuple):
    """The past runs and the sandbox state according to the events so far."""

    sandbox_state: SandboxState | None
    open: dict[str, UnfinishedRun]
    """By the run's id, oldest first."""
    ended: dict[str, ToolFinished | None]
    """By the run's id, oldest first; None if its output is no longer known."""
    until: float
    """When the last of the events was, in seconds since the epoch; 0 if there are none."""

    def was_replaced(self, generation: int) -> bool:
        """Whether something may have run in a sandbox that no longer exists, given that *generation* exists now."""
        known = self.sandbox_state
        return known is not None and known.generation != generation and known.phase is not SandboxPhase.CREATING


def past(events: Iterable[Event]) -> RunHistory:
    """Return what *events*, of one session and oldest first, say about its sandbox and its runs."""
    sandbox_state: SandboxState | None = None
    begun: dict[str, UnfinishedRun] = {}
    ended: dict[str, ToolFinished | None] = {}
    until = 0.0
    for event in events:
        until = event.at
        sandbox_state = apply_sandbox_event(sandbox_state, event)
        match event:
            case ToolStarted(call=call, tool=tool) if tool in INTERPRETERS:
                begun[call] = UnfinishedRun(tool, event.title, sandbox_state.generation if sandbox_state else 0)
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
    return RunHistory(sandbox_state, begun, ended, until)
