"""The code that a sandbox ran, in order, from its session's log: to be run again on request. Pure.

Nothing is run again automatically: its effects outside the sandbox would happen a second time.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kasmon.errors import NotFoundError
from kasmon.model.events import Checkpointed, Event, ToolFinished, ToolStarted
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter

_CUT: Final = re.compile(r"… [0-9,]+ more characters, blob ([0-9a-f]{64})\Z")
"""The end of a long input that an event truncated."""


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    interpreter: Interpreter
    code: str
    exit_code: int | None = None
    """None where it is unknown: the run did not end, or its end was not logged."""
    turn: int = 0
    """The turn of the first checkpoint after it; 0 where there was none."""
    commit: str = ""
    """The commit of that checkpoint's files."""


class _Input(msgspec.Struct):
    code: str


def find_runs(events: Iterable[Event], read_blob: Callable[[str], str]) -> tuple[ReplayedRun, ...]:
    """Return all runs, oldest first.

    Args:
        events: the events of one session, oldest first.
        read_blob: returns the text of a blob by its SHA-256; if it raises OSError, that run is left out.
    """
    runs: dict[str, ReplayedRun] = {}
    open_runs: list[str] = []
    for event in events:
        match event:
            case ToolStarted(call=call, tool=tool) if tool in INTERPRETERS:
                code = _code(event.input, read_blob)
                if code is not None:
                    runs[call] = ReplayedRun(at=event.at, interpreter=tool, code=code)
                    open_runs.append(call)
            case ToolFinished(call=call) if call in runs:
                runs[call] = msgspec.structs.replace(runs[call], exit_code=event.exit_code)
            case Checkpointed(when="after"):
                for call in open_runs:
                    runs[call] = msgspec.structs.replace(runs[call], turn=event.turn, commit=event.commit)
                open_runs.clear()
            case _:
                pass
    return tuple(runs.values())


def replay(
    events: Iterable[Event], read_blob: Callable[[str], str], until: str = ""
) -> tuple[tuple[Interpreter, str], ...]:
    """Return the code that leads to checkpoint *until* (empty: to now), each with its interpreter, in order.

    Runs that failed are included: they may have had effects. Files that the user copied in are not.

    Raises:
        NotFoundError: if *events* contain no such checkpoint.
    """
    logged = list(events)
    if until:
        positions = [
            at for at, event in enumerate(logged) if isinstance(event, Checkpointed) and event.checkpoint == until
        ]
        if not positions:
            raise NotFoundError(f"there is no checkpoint {until!r}.")
        logged = logged[: positions[-1]]
    return tuple((each.interpreter, each.code) for each in find_runs(logged, read_blob))


def _code(text: str, read_blob: Callable[[str], str]) -> str | None:
    try:
        if cut := _CUT.search(text):
            text = read_blob(cut[1])
        return msgspec.json.decode(text, type=_Input).code
    except (OSError, msgspec.MsgspecError):
        return None
