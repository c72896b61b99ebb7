"""What a sandbox ran, in order, as its session's log tells it: to be run again by whoever asks for that. Pure.

Nothing is ever run again by itself: what code did outside of the sandbox it would do a second time.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kasmon.errors import NotFoundError
from kasmon.model.events import Checkpointed, Event, ToolFinished, ToolStarted
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter

_CUT: Final = re.compile(r"… [0-9,]+ more characters, blob ([0-9a-f]{64})\Z")
"""How a long input ends in a fact."""


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of code."""

    at: float
    """When it began."""
    interpreter: Interpreter
    code: str
    exit_code: int | None = None
    """None where nobody knows: it had no end, or its end was not told."""
    turn: int = 0
    """The first turn of which a checkpoint was kept after it; 0 where there was none."""
    commit: str = ""
    """That checkpoint's files."""


class _Input(msgspec.Struct):
    code: str


def done(events: Iterable[Event], whole: Callable[[str], str]) -> tuple[ReplayedRun, ...]:
    """All that was run, oldest first.

    Args:
        events: of one session, oldest first.
        whole: the text of a blob by its SHA-256; an OSError of it leaves that run out.
    """
    runs: dict[str, ReplayedRun] = {}
    open_runs: list[str] = []
    for event in events:
        match event:
            case ToolStarted(call=call, tool=tool) if tool in INTERPRETERS:
                code = _code(event.input, whole)
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
    events: Iterable[Event], whole: Callable[[str], str], until: str = ""
) -> tuple[tuple[Interpreter, str], ...]:
    """The codes that lead to checkpoint *until* (empty: to now), each with its interpreter, in order.

    One that ended with an error is among them: it may have done a part. Files that somebody put there are not.

    Raises:
        NotFoundError: if *events* tell of no such checkpoint.
    """
    said = list(events)
    if until:
        places = [at for at, event in enumerate(said) if _is_checkpoint(event, until)]
        if not places:
            raise NotFoundError(f"there is no checkpoint {until!r}.")
        said = said[: places[-1]]
    return tuple((each.interpreter, each.code) for each in done(said, whole))


def _is_checkpoint(event: Event, checkpoint: str) -> bool:
    return isinstance(event, Checkpointed) and event.checkpoint == checkpoint


def _code(text: str, whole: Callable[[str], str]) -> str | None:
    try:
        if cut := _CUT.search(text):
            text = whole(cut[1])
        return msgspec.json.decode(text, type=_Input).code
    except (OSError, msgspec.MsgspecError):
        return None
