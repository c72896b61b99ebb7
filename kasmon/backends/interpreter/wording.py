"""What is said of a run, and of what is lost or not known: as its answer, and as the fact of its end. Pure."""

import time
from typing import Final

import msgspec

from kasmon.model.events import ToolFinished
from kasmon.model.sandbox.policy import RunResult

LOST_AGENT: Final = 137
KEPT: Final = "interpreter state is kept"


def not_known(lost: str) -> RunResult:
    """The answer to a run that may have begun in a sandbox which does not answer any more; *lost* with it."""
    hint = f"It is unknown how far this ran; it was not run again. {sentence(lost or KEPT)}"
    is_kept = not lost
    return RunResult(stderr=hint, exit_code=LOST_AGENT, session_preserved=is_kept, restarted=not is_kept, hint=hint)


def finished(call: str, ran: RunResult) -> ToolFinished:
    """The fact that the run *call* ended as *ran*, now."""
    is_ok = ran.exit_code == 0
    return ToolFinished(at=time.time(), call=call, ok=is_ok, output=told(ran), exit_code=ran.exit_code)


def after(lost: str, ran: RunResult) -> RunResult:
    """*ran*, which says that *lost* was lost before it."""
    return msgspec.structs.replace(ran, session_preserved=False, hint=f"{sentence(lost)} {ran.hint}".strip())


def interrupted_for_room(why: str, ran: RunResult) -> RunResult:
    """*ran*, which was interrupted because it filled the disk: *why*."""
    return msgspec.structs.replace(ran, disk_full=True, hint=f"{why} {ran.hint}".strip())


def sentence(text: str) -> str:
    """*text* with a capital in front and a full stop behind it."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def first_line(code: str) -> str:
    """The first line of *code* that says something, cut to a row."""
    return next((line.strip() for line in code.splitlines() if line.strip()), "")[:200]


def told(ran: RunResult) -> str:
    """What a run printed, as one text."""
    parts = [ran.stdout, ran.stderr if ran.stderr != ran.hint else "", ran.hint if ran.hint not in ran.stderr else ""]
    return "\n".join(part.rstrip("\n") for part in (*parts, ran.stderr if ran.stderr == ran.hint else "") if part)
