"""Commands to an existing sandbox: run code, interrupt it, pause, resume. Its host is started if needed.

This is a module of its own because `kasmon sandbox run` waits for every import: it must not import what creates or
removes sandboxes.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from kasmon.errors import HostUnreachableError, OtherMachineError, SessionEndedError, UnableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import CommandResult, ExecuteCommand, FromHost, RunOutputChunk
from kasmon.model.commands import Interrupt, Mode, Pause, Resume, Run, SandboxCommand
from kasmon.model.sandbox.policy import SIZES, Interpreter, RunResult
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.lookup import check_here

MOVING_S: Final = 180.0
"""How long it may take to pause or resume a sandbox, or to save or restore a checkpoint, after its turn's end."""
AROUND_S: Final = 60.0
"""How much longer than its own limit the result of a run may take, in seconds: it may wait for its sandbox."""
HOSTS: Final = 3
"""At most this many successive hosts are asked for the result of a run."""


async def run(
    paths: Paths,
    session: Session,
    interpreter: Interpreter,
    code: str,
    *,
    timeout_s: float | None = None,
    cap: int | None = None,
    printed: Callable[[RunOutputChunk], None] = lambda _: None,
    run: str = "",
) -> RunResult:
    """Run *code* in the session's sandbox, resuming it if needed, and return the result.

    Args:
        timeout_s: how long it may take; None is as long as the sandbox's size allows.
        cap: how many bytes of output are returned at most.
        printed: called with the output as it appears.
        run: its id: of two runs with one id only the first is executed, and both return its result.

    If its host goes away meanwhile, the next one is asked for the result; the code is not run again by that.

    Raises:
        SessionEndedError: if the sandbox has ended, by timeout or by the user.
        UnableError: if the session is no interpreter sandbox.
        RefusedError: if it is paused, and use does not resume it.
        HostUnreachableError, TimedOutError: if the result is unknown; calling again with the same *run* returns it.
    """
    command = Run(interpreter=interpreter, code=code, timeout_s=timeout_s, cap=cap, id=run or new_run())
    limit_s = AROUND_S + (max(size.time_s for size in SIZES.values()) if timeout_s is None else timeout_s)

    def handle_push(frame: FromHost) -> None:
        if isinstance(frame, RunOutputChunk) and frame.run == command.id:
            printed(frame)

    for hosts_left in reversed(range(HOSTS)):
        try:
            async with _link_host(paths, session) as host:
                host.on_push = handle_push
                try:
                    done = await _ask_host(host, session, command, limit_s)
                except HostUnreachableError:
                    if not hosts_left:
                        raise
                    command = msgspec.structs.replace(command, again=True)
                    continue
        except OtherMachineError:  # no host of it runs there
            if not hosts_left:
                raise
            await execute(paths, session, Resume())
            continue
        if done.ran is not None:
            return done.ran
    raise HostUnreachableError(session.name, "it did not report the result of the run")


def new_run() -> str:
    """Return a new unique id for a run."""
    return os.urandom(8).hex()


async def execute(paths: Paths, session: Session, command: SandboxCommand) -> str:
    """Pause or resume the session's sandbox, or save or restore a checkpoint, once its turn is over. Raises as `run`.

    Returns the checkpoint's id; else a description of what was lost, empty if nothing.
    """
    is_agents = bool(session.sandbox) and isinstance(command, Pause | Resume)
    try:
        async with _link_host(paths, session, is_agents=is_agents) as host:
            return (await _ask_host(host, session, command, MOVING_S)).outcome
    except OtherMachineError:  # no host of it runs there
        from kasmon.supervisor.machines import sandboxes  # rarely needed

        return await sandboxes.execute(paths, session, command)


async def start_host(paths: Paths, session: Session) -> None:
    """Start the host of a session whose sandbox outlived it, to enforce its timeouts; the sandbox may stay paused."""
    async with _link_host(paths, session):
        pass


async def interrupt(paths: Paths, session: Session, interpreter: Interpreter | None = None, *, run: str = "") -> None:
    """Interrupt what runs in the session's sandbox; optionally only in one interpreter, or only the run with id *run*.

    Interpreters keep their state if they react. Raises `RefusedError` if *run* is over, or did not exist: nothing is
    interrupted then; `SandboxError` if it continues nevertheless; else as `run`.
    """
    async with _link_host(paths, session) as host:
        await host.ask(ExecuteCommand(n=0, session=session.id, command=Interrupt(interpreter=interpreter, run=run)))


@contextlib.asynccontextmanager
async def _link_host(paths: Paths, session: Session, *, is_agents: bool = False) -> AsyncIterator[HostLink]:
    if not is_agents:
        must_be_sandbox(session)
    if session.state is SessionState.ENDED:
        raise SessionEndedError(session.name)
    is_lost = session.state is SessionState.LOST
    try:
        host = await open_link(paths, session.id, session.mode, start=is_lost, limit_s=AROUND_S)
    except HostUnreachableError:
        check_here(session)  # its machine can start one
        raise
    try:
        yield host
    finally:
        await host.aclose()


async def _ask_host(host: HostLink, session: Session, command: SandboxCommand, limit_s: float) -> CommandResult:
    done = await host.ask(ExecuteCommand(n=0, session=session.id, command=command), limit_s)
    if not isinstance(done, CommandResult):
        raise HostUnreachableError(session.name, "it sent an unexpected answer")
    return done


def must_be_sandbox(session: Session) -> None:
    """Raise `UnableError` unless *session* is an interpreter sandbox."""
    if session.mode is not Mode.INTERPRETER:
        raise UnableError(
            f"session {session.name!r} is not an interpreter sandbox.",
            hint="`kasmon sandbox ls` lists interpreter sandboxes.",
        )
