"""Attach the stdio proxy to its sandbox: create, find or resume the sandbox, and start the agent in it once."""

import contextlib
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxRuntime
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.guest_client.line import AgentConnection, AgentConnectionError, packed
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.launch_spec import AgentTier, RemoteLaunchSpec
from kasmon.sandbox.remote_guest.process_stream import StreamFrame

ANSWER_S: Final = 20.0


class NotStartedError(SandboxError):
    """The agent's program could not be started inside."""

    def __init__(self, why: str, status: int) -> None:
        self.status = status
        super().__init__("the agent was not started in its sandbox", why)


class GuestAttachment(NamedTuple):
    """The sandbox of a stdio proxy, with the agent running."""

    tier: AgentTier
    runtime: SandboxRuntime
    run: str
    marks: tuple[str, str]
    notices: tuple[str, ...] = ()
    lost: str = ""
    is_found: bool = False
    """Whether the agent was running already."""
    context: bytes = b""


def arrived(tier: AgentTier, told: RemoteLaunchSpec, size: "tuple[int, int] | None") -> GuestAttachment:
    """Return the sandbox with the agent of *told*, on a terminal of *size* (columns, rows) or pipes. Blocks minutes.

    Raises:
        NotStartedError: if its program cannot be started; nothing of the sandbox is left.
        SandboxUnreachableError: if the service that runs it cannot be reached; it is unchanged.
        KasmonError: if no sandbox can be created; nothing of it is left.
    """
    lost = ""
    if told.joins:
        try:
            return _found(tier, told)
        except SandboxUnreachableError:  # its state is unknown: nothing is lost by waiting
            raise
        except (KasmonError, OSError, AgentConnectionError) as error:
            why = getattr(error, "message", str(error)).rstrip(".")
            lost = f"its memory snapshot could not be resumed ({why}): memory lost, files kept"
            tier.destroy(told.policy, None)
            told = msgspec.structs.replace(told, run=secrets.token_hex(8))
    runtime = tier.lodge(told.policy, told.fitted)
    try:
        context = _start(told, runtime, size)
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            tier.destroy(told.policy, runtime)
        if isinstance(error, AgentConnectionError):
            raise SandboxError("the agent was not started in its sandbox", str(error)) from error
        raise
    notices = (*told.fitted.notices, *runtime.notices)
    return GuestAttachment(
        tier=tier, runtime=runtime, run=told.run, marks=told.marks, notices=notices, lost=lost, context=context
    )


def _found(tier: AgentTier, told: RemoteLaunchSpec) -> GuestAttachment:
    """Return the running agent, or resume its snapshot.

    Raises:
        KasmonError: if that fails.
        AgentConnectionError: if the guest does not answer.
    """
    known = launch_spec.stay(Path(told.ground))
    if known is None or known.run != told.run:
        raise SandboxError("it is unknown", "there is no record of it")
    runtime = tier.adopt(told.policy)
    if runtime is not None:
        runtime = tier.resume(told.policy, runtime, PauseResult(held=True))
    else:
        kept = tier.kept(told.policy)
        if kept is None:
            raise SandboxError("it has ended", "it is not running, and nothing of it was saved")
        runtime = tier.resume(told.policy, known.runtime, PauseResult(held=False, snapshot=kept.id))
    launch_spec.wait_no_more(Path(told.ground))
    return GuestAttachment(tier=tier, runtime=runtime, run=told.run, marks=known.marks, is_found=True)


def _start(told: RemoteLaunchSpec, runtime: SandboxRuntime, size: "tuple[int, int] | None") -> bytes:
    """Copy the launch files inside and start the program; return the context that was copied.

    Raises:
        NotStartedError, SandboxError, AgentConnectionError: if that fails.
    """
    context = Path(told.context).read_bytes() if told.context else b""
    # tmux reports the terminal type only to this process; a shell without it assumes a dumb terminal
    of_terminal = {name: value for name, value in os.environ.items() if size and name in ("TERM", "COLORTERM")}
    gifts = [(gift.path, gift.content, gift.mode) for gift in told.gifts]
    if context:
        gifts.append((launch_spec.CONTEXT, context, 0o644))
    line = AgentConnection(runtime.socket, ANSWER_S)
    with contextlib.closing(line):
        for path, content, mode in gifts:
            said = _asked(line, "write_volatile", launch_spec.volatile(path, content, mode))
            if said.type != "answer":
                raise SandboxError(f"{path!r} could not be copied into the sandbox", said.stderr)
        words = {
            "run": told.run,
            "argv": told.fitted.argv,
            "variables": {**told.fitted.variables, **of_terminal},
            "workdir": told.fitted.workdir,
            "columns": size[0] if size else 0,
            "rows": size[1] if size else 0,
            "notes": launch_spec.NOTES if told.notes else "",
        }
        said = _asked(line, "process_start", words)
    if not said.pid:
        raise NotStartedError(said.why or said.stderr or "it gives no reason", said.code or 1)
    return context


def _asked(line: AgentConnection, what: str, words: Mapping[str, Any]) -> StreamFrame:
    line.send(packed({"id": what, "type": what, **words}), ANSWER_S)
    until = time.monotonic() + ANSWER_S
    try:
        return line.receive(StreamFrame, until)
    except TimeoutError as error:
        raise AgentConnectionError("it does not respond", is_sent=True) from error
