"""What a sandbox that is there can be asked: to run code, to stop that, to sleep, to wake. Its host is started for it.

It stands apart as `kasmon sandbox run` waits for every module: nothing here makes a sandbox or opens what one keeps.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from kasmon.errors import HostUnreachableError, SessionEndedError, UnableError
from kasmon.host.rpc.connect import HostLink, link
from kasmon.host.rpc.frames import CommandDone, ExecuteCommand, FromHost, RunOutputChunk
from kasmon.model.commands import Interrupt, Mode, Pause, Resume, Run, SandboxWish
from kasmon.model.sandbox.policy import SIZES, Interpreter, RunResult
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths

MOVING_S: Final = 180.0
"""How long a sandbox may take to sleep, to wake, to keep a checkpoint or to go back to one, its turn's end included."""
AROUND_S: Final = 60.0
"""How much longer than its own limit a run may take until it is told, in seconds: it may wait for its sandbox."""
HOSTS: Final = 3
"""Of so many hosts, each after the one before went away, it is asked what came of a run."""


async def run(
    places: Paths,
    session: Session,
    interpreter: Interpreter,
    code: str,
    *,
    timeout_s: float | None = None,
    cap: int | None = None,
    printed: Callable[[RunOutputChunk], None] = lambda _: None,
    run: str = "",
) -> RunResult:
    """Run *code* in the session's sandbox, waking it for that, and return what came of it.

    Args:
        places: where the session is kept.
        session: whose sandbox.
        interpreter: which.
        code: what.
        timeout_s: how long it may take; None is as long as the sandbox's size allows.
        cap: how many bytes of output are returned at most.
        printed: called with what it prints meanwhile.
        run: its id: of two with one id only the first runs, and both get what came of it.

    Where its host goes away meanwhile, the next one is asked what came of it; the code is not run again by that.

    Raises:
        SessionEndedError: if the sandbox is gone, by its time or by a person.
        UnableError: if the session is no sandbox of interpreters.
        RefusedError: if it sleeps, and use does not wake it.
        HostUnreachableError, TimedOutError: if it is not known what came of it; the same *run* again tells.
    """
    wish = Run(interpreter=interpreter, code=code, timeout_s=timeout_s, cap=cap, id=run or new_run())
    limit_s = AROUND_S + (max(size.time_s for size in SIZES.values()) if timeout_s is None else timeout_s)

    def pushed(frame: FromHost) -> None:
        if isinstance(frame, RunOutputChunk) and frame.run == wish.id:
            printed(frame)

    for left in reversed(range(HOSTS)):
        async with _linked(places, session) as host:
            host.on_push = pushed
            try:
                done = await _asked(host, session, wish, limit_s)
            except HostUnreachableError:
                if not left:
                    raise
                wish = msgspec.structs.replace(wish, again=True)
                continue
        if done.ran is not None:
            return done.ran
    raise HostUnreachableError(session.name, "it did not report the result of the run")


def new_run() -> str:
    """An id for a run, as nobody else has it."""
    return os.urandom(8).hex()


async def keep(places: Paths, session: Session, wish: SandboxWish) -> str:
    """Put the session's sandbox to sleep, wake it, keep a checkpoint of it or go back to one, once its turn is over.

    Returns the checkpoint's id; else what was lost, empty where nothing was.

    Raises:
        KasmonError: as `run` does, and why it could not be done.
    """
    is_agents = bool(session.sandbox) and isinstance(wish, Pause | Resume)
    async with _linked(places, session, is_agents=is_agents) as host:
        return (await _asked(host, session, wish, MOVING_S)).told


async def take_up(places: Paths, session: Session) -> None:
    """Start the host of a session whose sandbox outlived it, so that somebody keeps its time; it may sleep on.

    Raises:
        KasmonError: as `run` does.
    """
    async with _linked(places, session):
        pass


async def interrupt(places: Paths, session: Session, interpreter: Interpreter | None = None, *, run: str = "") -> None:
    """Interrupt what runs in the session's sandbox; only in one interpreter, or only the run with the id *run*.

    What its interpreters hold is kept where they react.

    Raises:
        RefusedError: if *run* is over, or there was none; nothing was interrupted then.
        SandboxError: if *run* goes on all the same.
        KasmonError: as `run` does.
    """
    async with _linked(places, session) as host:
        await host.ask(ExecuteCommand(n=0, session=session.id, wish=Interrupt(interpreter=interpreter, run=run)))


@contextlib.asynccontextmanager
async def _linked(places: Paths, session: Session, *, is_agents: bool = False) -> AsyncIterator[HostLink]:
    if not is_agents:
        must_be_sandbox(session)
    if session.state is SessionState.ENDED:
        raise SessionEndedError(session.name)
    is_lost = session.state is SessionState.LOST
    host = await link(places, session.id, session.mode, start=is_lost, limit_s=AROUND_S)
    try:
        yield host
    finally:
        await host.aclose()


async def _asked(host: HostLink, session: Session, wish: SandboxWish, limit_s: float) -> CommandDone:
    done = await host.ask(ExecuteCommand(n=0, session=session.id, wish=wish), limit_s)
    if not isinstance(done, CommandDone):
        raise HostUnreachableError(session.name, "it sent an unexpected answer")
    return done


def must_be_sandbox(session: Session) -> None:
    """
    Raises:
        UnableError: if *session* is no sandbox of interpreters.
    """
    if session.mode is not Mode.INTERPRETER:
        raise UnableError(
            f"session {session.name!r} is not an interpreter sandbox.",
            hint="`kasmon sandbox ls` lists interpreter sandboxes.",
        )
