"""Tool results: stdout, stderr, exit_code, session_preserved, and optional fields. Pure."""

from typing import Any, Final

import msgspec

from kasmon.errors import KasmonError, RefusedError, SessionEndedError, UsageError
from kasmon.model.sandbox.policy import RunResult

FAILED: Final = 1
ALWAYS: Final = ("stdout", "stderr", "exit_code", "session_preserved")
IF_SET: Final = ("hint", "timed_out", "disk_full", "restarted", "omitted", "background")
ONCE: Final = (
    "Nothing is kept, because it had no session. Consider: 1) Increasing timeout, 2) Breaking operation into "
    "smaller steps, 3) Passing a session, so that what was done until then is kept."
)


def of_run(ran: RunResult, session: str, sandbox_name: str) -> dict[str, Any]:
    """Return the result of a run in the client's *session*, whose sandbox refers to itself as *sandbox_name*."""
    hint = ran.hint.replace(f"session={sandbox_name} ", f"session={session!r} ").replace(
        repr(sandbox_name), repr(session)
    )
    stderr = _with_hint(ran, hint)
    return _as_table(msgspec.structs.replace(ran, stderr=stderr, hint=hint)) | {"session": session}


def of_once(ran: RunResult) -> dict[str, Any]:
    """Return the result of a run in a temporary sandbox, which is removed: nothing is reported as retained."""
    hints = [f"Timed out. {ONCE}"] if ran.timed_out else []
    hints += ["It filled the disk of its sandbox and was interrupted. Nothing is kept."] if ran.disk_full else []
    hints += [f"{ran.omitted} bytes of output were omitted."] if ran.omitted else []
    hint = " ".join(hints)
    shown = msgspec.structs.replace(ran, stderr=_with_hint(ran, hint), hint=hint, session_preserved=False)
    return _as_table(msgspec.structs.replace(shown, restarted=False, background=""))


def lost_before(result: dict[str, Any], lost: str) -> dict[str, Any]:
    """Return the *result* of a run before which *lost* was lost."""
    if not lost:
        return result
    sentence = f"{lost[:1].upper()}{lost[1:].rstrip('.')}."
    return result | {"session_preserved": False, "hint": f"{sentence} {result.get('hint', '')}".strip()}


def refused(why: str, *, preserved: bool, exit_code: int = FAILED) -> dict[str, Any]:
    """Return the result of a call that did not run code."""
    return {"stdout": "", "stderr": why, "exit_code": exit_code, "session_preserved": preserved}


def of_error(error: KasmonError, *, has_session: bool) -> dict[str, Any]:
    """Return the same for a kasmon error. Only state that is known to be retained is reported as such."""
    why = str(error)
    is_untouched = isinstance(error, UsageError | RefusedError) and not isinstance(error, SessionEndedError)
    return refused(why, preserved=has_session and is_untouched, exit_code=error.exit_code)


def _with_hint(ran: RunResult, hint: str) -> str:
    """Return stderr with *hint* replacing the hint at its end, if there is one."""
    if not ran.hint or not ran.stderr.endswith(ran.hint):
        return ran.stderr
    return (ran.stderr.removesuffix(ran.hint) + hint) if hint else ran.stderr.removesuffix(ran.hint).rstrip("\n")


def _as_table(ran: RunResult) -> dict[str, Any]:
    fields = msgspec.structs.asdict(ran)
    return {name: fields[name] for name in ALWAYS} | {name: fields[name] for name in IF_SET if fields[name]}
