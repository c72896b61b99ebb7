"""A front comes to its sandbox: it is made, or found, or taken up from disk; and the agent is started in it, once."""

import contextlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox import Runtime
from kasmon.sandbox.base import Slept
from kasmon.sandbox.far import quarters
from kasmon.sandbox.far.quarters import Lodging, Quarters
from kasmon.sandbox.far.tether import Answer
from kasmon.sandbox.line import Line, LineError, packed

ANSWER_S: Final = 20.0


class NotStartedError(SandboxError):
    """The agent's program could not be started inside."""

    def __init__(self, why: str, status: int) -> None:
        self.status = status
        super().__init__("the agent was not started in its sandbox", why)


class Arrival(NamedTuple):
    """Where a front is, once the agent is inside."""

    tier: Lodging
    runtime: Runtime
    run: str
    marks: tuple[str, str]
    notices: tuple[str, ...] = ()
    lost: str = ""
    is_found: bool = False
    """The agent was there already."""
    context: bytes = b""


def arrived(tier: Lodging, told: Quarters, size: "tuple[int, int] | None") -> Arrival:
    """Where the agent of *told* is inside, on a terminal of *size* (columns, rows) or on pipes. Blocks up to minutes.

    Raises:
        NotStartedError: if its program cannot be started; nothing of the sandbox is left.
        SandboxUnreachableError: if where it is kept cannot be asked; it is as it was.
        KasmonError: if no sandbox can be made; likewise.
    """
    lost = ""
    if told.joins:
        try:
            return _found(tier, told)
        except SandboxUnreachableError:  # nobody can tell: nothing is lost by waiting
            raise
        except (KasmonError, OSError, LineError) as error:
            why = getattr(error, "message", str(error)).rstrip(".")
            lost = f"its memory could not be gone on from ({why}): what it held is lost; its files are as they were"
            tier.destroy(told.policy, None)
            told = msgspec.structs.replace(told, run=secrets.token_hex(8))
    runtime = tier.lodge(told.policy, told.fitted)
    try:
        context = _start(told, runtime, size)
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            tier.destroy(told.policy, runtime)
        if isinstance(error, LineError):
            raise SandboxError("the agent was not started in its sandbox", str(error)) from error
        raise
    notices = (*told.fitted.notices, *runtime.notices)
    return Arrival(
        tier=tier, runtime=runtime, run=told.run, marks=told.marks, notices=notices, lost=lost, context=context
    )


def _found(tier: Lodging, told: Quarters) -> Arrival:
    """The agent that is there, or in a memory on disk.

    Raises:
        KasmonError: if it cannot be gone on with.
        LineError: if nobody answers there.
    """
    known = quarters.stay(Path(told.ground))
    if known is None or known.run != told.run:
        raise SandboxError("it is not known", "nothing was noted of it")
    runtime = tier.adopt(told.policy)
    if runtime is not None:
        runtime = tier.resume(told.policy, runtime, Slept(held=True))
    else:
        kept = tier.kept(told.policy)
        if kept is None:
            raise SandboxError("it is gone", "nothing of it lives or was kept")
        runtime = tier.resume(told.policy, known.runtime, Slept(held=False, snapshot=kept.id))
    quarters.wait_no_more(Path(told.ground))
    return Arrival(tier=tier, runtime=runtime, run=told.run, marks=known.marks, is_found=True)


def _start(told: Quarters, runtime: Runtime, size: "tuple[int, int] | None") -> bytes:
    """Put the gifts inside and start the program; what was put there as context.

    Raises:
        NotStartedError, SandboxError, LineError: if that cannot be.
    """
    context = Path(told.context).read_bytes() if told.context else b""
    gifts = [(gift.path, gift.content, gift.mode) for gift in told.gifts]
    if context:
        gifts.append((quarters.CONTEXT, context, 0o644))
    line = Line(runtime.socket, ANSWER_S)
    with contextlib.closing(line):
        for path, content, mode in gifts:
            said = _asked(line, "write_volatile", quarters.volatile(path, content, mode))
            if said.type != "answer":
                raise SandboxError(f"{path!r} could not be put inside", said.stderr)
        words = {
            "run": told.run,
            "argv": told.fitted.argv,
            "variables": told.fitted.variables,
            "workdir": told.fitted.workdir,
            "columns": size[0] if size else 0,
            "rows": size[1] if size else 0,
            "notes": quarters.NOTES if told.notes else "",
        }
        said = _asked(line, "process_start", words)
    if not said.pid:
        raise NotStartedError(said.why or said.stderr or "it does not say why", said.code or 1)
    return context


def _asked(line: Line, what: str, words: Mapping[str, Any]) -> Answer:
    line.send(packed({"id": what, "type": what, **words}), ANSWER_S)
    until = time.monotonic() + ANSWER_S
    try:
        return line.receive(Answer, until)
    except TimeoutError as error:
        raise LineError("it does not answer", is_sent=True) from error
