"""Results of runs: the four basic fields (stdout, stderr, exit_code, session_preserved), further ones, and a hint."""

import signal
import time
from collections.abc import Mapping

from kasmon.sandbox.guest.turn import STREAMS, GuestTurn

TIMED_OUT = 124
NOT_DONE = 125
INTERRUPTED = 130
UNHEARD = 113
"""Exit code of kasmon's workers when their control channel is closed."""


def ended(code: int) -> str:
    """Describe how a process ended, by its exit code where that is not negative, else by its signal."""
    if code == UNHEARD:
        return "code closed its control channel"
    if code >= 0:
        return f"exit code {code}"
    names = {
        signal.SIGKILL: "killed, perhaps out of memory",
        signal.SIGSEGV: "it crashed",
        signal.SIGABRT: "it gave up",
    }
    return f"signal {-code}" + (f": {names[signal.Signals(-code)]}" if -code in names else "")


def refusal(request: Mapping[str, object], why: str, code: int = 1) -> dict[str, object]:
    """Return the answer to a request that was not executed, in the four basic fields."""
    result: dict[str, object] = {"stdout": "", "stderr": why, "exit_code": code, "session_preserved": True}
    return {"id": request["id"], **result} if "id" in request else result


def not_run(why: str, code: int = NOT_DONE) -> dict[str, object]:
    """Return the result of a run that was accepted, and of which nothing was executed now."""
    return {"stdout": "", "stderr": why, "exit_code": code, "session_preserved": True, "hint": why}


def outcome(
    name: str, turn: GuestTurn, *, answer: Mapping[str, object] | None, died: int | None, carried: bool
) -> dict[str, object]:
    """Return the result of a run of interpreter *name*: from its *answer*, or of its exit code *died*.

    *carried*: it died, and the next process restores its state.
    """
    texts = {stream: turn.output[stream].text() for stream in STREAMS}
    omitted = sum(count for _, count in texts.values())
    kept = answer is not None or carried
    if turn.overdue:
        code = TIMED_OUT
    elif answer is not None:
        code = _number(answer.get("rc"))
    else:
        code = died if died is not None and died >= 0 else 128 - (died or 0)
    hint = _hint(name, turn, kept=kept, died=died, carried=carried, omitted=omitted)
    stderr = texts["stderr"][0]
    if turn.overdue or died is not None:  # part of the basic fields
        stderr += ("\n" if stderr and not stderr.endswith("\n") else "") + hint
    result: dict[str, object] = {
        "stdout": texts["stdout"][0],
        "stderr": stderr,
        "exit_code": code,
        "session_preserved": kept and (not turn.restarted or turn.carried),
        "turn": turn.number,
        "ms": round((time.monotonic() - turn.begun_at) * 1000, 3),
    }
    more = {
        "hint": hint,
        "omitted": omitted,
        "timed_out": turn.overdue,
        "restarted": turn.restarted,
        "cwd": answer.get("cwd") if answer else "",
        "background": "".join(turn.earlier),
    }
    return result | {key: value for key, value in more.items() if value}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 1


def _hint(name: str, turn: GuestTurn, *, kept: bool, died: int | None, carried: bool, omitted: int) -> str:
    session = f"Session {turn.session!r}" if turn.session else "The session"
    hints = [turn.lost_before] if turn.lost_before else []
    if turn.overdue:
        steps = (
            "Consider: 1) Increasing timeout, 2) Breaking operation into smaller steps, "
            f"3) Using session={turn.session or '...'!r} to continue where you left off."
        )
        if died is None:
            state = "The session state is preserved."
        elif carried:
            state = f"It did not react to an interrupt, so {name} was ended; {_CARRIED}"
        else:
            state = f"It did not react to an interrupt, so {name} was ended: {_LOST}"
        hints.append(f"{session} timed out after {turn.timeout_s:g}s. {state} {steps}")
    elif died is not None:
        rest = _CARRIED if carried else f"{_LOST} The next run starts it again."
        how = "on request" if turn.killed else ended(died)
        hints.append(f"{name} ended during this run ({how}): {rest}")
    elif turn.interrupted and kept:
        hints.append("Interrupted. The session state is preserved; the effects of the code that already ran remain.")
    if omitted:
        hints.append(
            f"{omitted} bytes of output were omitted. Write long output to a file, and read the part that you need."
        )
    return " ".join(hints)


_LOST = "its variables are lost. Files and the other interpreters are preserved."
_CARRIED = "its variables, functions and folder are carried over to the next run; its background jobs are not."


def lost_before(name: str, how: str, carried: bool) -> str:
    """Return the notice of the first run after an interpreter's death."""
    rest = "its variables, functions and folder were carried over, its background jobs were not." if carried else _LOST
    return f"{name} had ended before this run ({how}) and was restarted: {rest}"
