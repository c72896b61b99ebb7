"""The texts about a run and about what is lost or unknown: as its result, and as its end event. Pure."""

import time
from typing import Final

import msgspec

from kasmon.model.events import ToolFinished
from kasmon.model.sandbox.policy import RunResult

LOST_AGENT: Final = 137
KEPT: Final = "interpreter state is kept"


def unknown_result(lost: str) -> RunResult:
    """Return the result of a run that may have begun in a sandbox which no longer responds; *lost* with it."""
    hint = f"It is unknown how far this ran; it was not run again. {as_sentence(lost or KEPT)}"
    is_kept = not lost
    return RunResult(stderr=hint, exit_code=LOST_AGENT, session_preserved=is_kept, restarted=not is_kept, hint=hint)


def finished_event(call: str, ran: RunResult) -> ToolFinished:
    """Return the event that the run *call* ended as *ran*, now."""
    is_ok = ran.exit_code == 0
    return ToolFinished(at=time.time(), call=call, ok=is_ok, output=output_text(ran), exit_code=ran.exit_code)


def with_loss(lost: str, ran: RunResult) -> RunResult:
    """Return *ran*, with the hint that *lost* was lost before it."""
    return msgspec.structs.replace(ran, session_preserved=False, hint=f"{as_sentence(lost)} {ran.hint}".strip())


def interrupted_by_full_disk(why: str, ran: RunResult) -> RunResult:
    """Return *ran*, which was interrupted because it filled the disk: *why*."""
    return msgspec.structs.replace(ran, disk_full=True, hint=f"{why} {ran.hint}".strip())


def as_sentence(text: str) -> str:
    """Return *text* with a capital at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def first_line(code: str) -> str:
    """Return the first non-empty line of *code*, truncated to a row."""
    return next((line.strip() for line in code.splitlines() if line.strip()), "")[:200]


def output_text(ran: RunResult) -> str:
    """Return what a run printed, as one text."""
    parts = [ran.stdout, ran.stderr if ran.stderr != ran.hint else "", ran.hint if ran.hint not in ran.stderr else ""]
    return "\n".join(part.rstrip("\n") for part in (*parts, ran.stderr if ran.stderr == ran.hint else "") if part)
