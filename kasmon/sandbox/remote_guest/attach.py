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
from kasmon.sandbox.guest_client.connection import AgentConnection, AgentConnectionError, pack_request
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


def attach(tier: AgentTier, spec: RemoteLaunchSpec, size: "tuple[int, int] | None") -> GuestAttachment:
    """Return the sandbox with the agent of *spec*, on a terminal of *size* (columns, rows) or pipes. Blocks minutes.

    Raises:
        NotStartedError: if its program cannot be started; nothing of the sandbox is left.
        SandboxUnreachableError: if the service that runs it cannot be reached; it is unchanged.
        KasmonError: if no sandbox can be created; nothing of it is left.
    """
    lost = ""
    if spec.joins:
        try:
            return _attach_existing(tier, spec)
        except SandboxUnreachableError:  # its state is unknown: nothing is lost by waiting
            raise
        except (KasmonError, OSError, AgentConnectionError) as error:
            why = getattr(error, "message", str(error)).rstrip(".")
            lost = f"its memory snapshot could not be resumed ({why}): memory lost, files kept"
            tier.destroy(spec.policy, None)
            spec = msgspec.structs.replace(spec, run=secrets.token_hex(8))
    runtime = tier.create_for_agent(spec.policy, spec.program_launch)
    try:
        context = _start_agent(spec, runtime, size)
    except BaseException as error:
        with contextlib.suppress(KasmonError):
            tier.destroy(spec.policy, runtime)
        if isinstance(error, AgentConnectionError):
            raise SandboxError("the agent was not started in its sandbox", str(error)) from error
        raise
    notices = (*spec.program_launch.notices, *runtime.notices)
    return GuestAttachment(
        tier=tier, runtime=runtime, run=spec.run, marks=spec.marks, notices=notices, lost=lost, context=context
    )


def _attach_existing(tier: AgentTier, spec: RemoteLaunchSpec) -> GuestAttachment:
    """Return the running agent, or resume its snapshot.

    Raises:
        KasmonError: if that fails.
        AgentConnectionError: if the guest does not answer.
    """
    known = launch_spec.load_status(Path(spec.session_folder))
    if known is None or known.run != spec.run:
        raise SandboxError("it is unknown", "there is no record of it")
    runtime = tier.adopt(spec.policy)
    if runtime is not None:
        runtime = tier.resume(spec.policy, runtime, PauseResult(held=True))
    else:
        kept = tier.kept(spec.policy)
        if kept is None:
            raise SandboxError("it has ended", "it is not running, and nothing of it was saved")
        runtime = tier.resume(spec.policy, known.runtime, PauseResult(held=False, snapshot=kept.id))
    launch_spec.end_wait(Path(spec.session_folder))
    return GuestAttachment(tier=tier, runtime=runtime, run=spec.run, marks=known.marks, is_found=True)


def _start_agent(spec: RemoteLaunchSpec, runtime: SandboxRuntime, size: "tuple[int, int] | None") -> bytes:
    """Copy the launch files inside and start the program; return the context that was copied.

    Raises:
        NotStartedError, SandboxError, AgentConnectionError: if that fails.
    """
    context = Path(spec.context).read_bytes() if spec.context else b""
    # tmux reports the terminal type only to this process; a shell without it assumes a dumb terminal
    of_terminal = {name: value for name, value in os.environ.items() if size and name in ("TERM", "COLORTERM")}
    gifts = [(gift.path, gift.content, gift.mode) for gift in spec.gifts]
    if context:
        gifts.append((launch_spec.CONTEXT, context, 0o644))
    connection = AgentConnection(runtime.socket, ANSWER_S)
    with contextlib.closing(connection):
        for path, content, mode in gifts:
            reply = _send_request(connection, "write_volatile", launch_spec.build_file_request(path, content, mode))
            if reply.type != "answer":
                raise SandboxError(f"{path!r} could not be copied into the sandbox", reply.stderr)
        words = {
            "run": spec.run,
            "argv": spec.program_launch.argv,
            "variables": {**spec.program_launch.variables, **of_terminal},
            "workdir": spec.program_launch.workdir,
            "columns": size[0] if size else 0,
            "rows": size[1] if size else 0,
            "notes": launch_spec.NOTES if spec.notes else "",
        }
        reply = _send_request(connection, "process_start", words)
    if not reply.pid:
        raise NotStartedError(reply.why or reply.stderr or "it gives no reason", reply.code or 1)
    return context


def _send_request(connection: AgentConnection, what: str, words: Mapping[str, Any]) -> StreamFrame:
    connection.send(pack_request({"id": what, "type": what, **words}), ANSWER_S)
    until = time.monotonic() + ANSWER_S
    try:
        return connection.receive(StreamFrame, until)
    except TimeoutError as error:
        raise AgentConnectionError("it does not respond", is_sent=True) from error
