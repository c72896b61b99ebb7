"""The acts on sessions that the command line and the dashboard share. Each is done, or raises why it was not.

A `Session` that is passed in is what the caller saw; where it matters the host has the last word.
"""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.config.address import machine_of
from kasmon.errors import (
    HostUnreachableError,
    InteractiveOnlyError,
    RefusedError,
    SessionEndedError,
    TimedOutError,
    UsageError,
)
from kasmon.host.book import wanted as launch_of
from kasmon.host.client import link
from kasmon.host.wire import Do, Done, Look, PaneSeen, Say
from kasmon.model.command import (
    Answer,
    Configure,
    Interrupt,
    Launch,
    Mode,
    Prompt,
    Receipt,
    Requeue,
    Sender,
    Stop,
    When,
    Wish,
)
from kasmon.model.event import SessionEnded
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import ALIVE, SessionState
from kasmon.paths import Places, write_private
from kasmon.supervisor.begin import begin
from kasmon.supervisor.create import NewSession, prepare
from kasmon.supervisor.facts import Facts
from kasmon.supervisor.listing import copy_stays, forget, rename
from kasmon.supervisor.local_config import check_brought
from kasmon.supervisor.orphan import end_orphan
from kasmon.supervisor.read import read
from kasmon.supervisor.resuming import resumed
from kasmon.supervisor.wait import wait_for

__all__ = [
    "NewSession",
    "answer",
    "attach_argv",
    "configure",
    "copy_stays",
    "create",
    "declare",
    "forget",
    "interrupt",
    "pane",
    "read",
    "rename",
    "requeue",
    "restart",
    "send",
    "stop",
    "wait_for",
]

WAKING_S: Final = 180.0
"""How long a host may take to wake what sleeps on disk before it does what is wanted."""
ENDING_S: Final = 20.0
"""How much longer than its grace a stop may take until the log says that the agent ended, in seconds."""


async def create(places: Places, config: Config, wanted: NewSession) -> SessionId:
    """Start the session that is *wanted* and return its id; its agent runs then.

    Raises:
        KasmonError: as `prepare` and `begin` do. Where the agent could not be started, its session has ended.
    """
    launch = await asyncio.to_thread(prepare, places, config, wanted, time.time())
    await begin(places, launch)
    return launch.session


async def send(
    places: Places, session: Session, text: str, when: When = "now", by: Sender = "user", *, anyway: bool = False
) -> Receipt:
    """Give the agent *text* as one prompt, and return how far it came until now; the log tells how it goes on.

    *anyway*: as `Prompt.anyway`.

    Raises:
        UsageError: if there is no text.
        SessionBusyError: if the agent is in a turn and *when* is `refuse`.
        SessionEndedError, HostUnreachableError: if nobody is there to take it.
        TimedOutError: if the host did not answer in time; whether it has the prompt is not known then.
    """
    if not text.strip():
        raise UsageError("there is no text to send.")
    return await _receipt(places, session, Prompt(text=text, when=when, by=by, anyway=anyway))


async def requeue(places: Places, session: Session, wish: Requeue) -> Receipt:
    """Change, move or take back a prompt that waits, and return its receipt.

    Raises:
        NotFoundError: if there is no such prompt.
        RefusedError: if it waits no more.
        UsageError: if it would be empty.
        SessionEndedError, HostUnreachableError: if nobody is there to take it.
    """
    return await _receipt(places, session, wish)


async def configure(places: Places, session: Session, wish: Configure) -> None:
    """Change how the agent goes on from now.

    Raises:
        UnableError: if this kind of agent cannot change that while it runs.
        SessionEndedError, HostUnreachableError: if nobody is there to take it.
    """
    await _do(places, session, wish)


async def declare(places: Places, session: Session, *, waiting: str | None = None, done: str | None = None) -> None:
    """Note what the session's agent says of itself: what it waits for on purpose, or that its task is done.

    Raises:
        SessionEndedError, HostUnreachableError: if it does not run.
    """
    if session.state is SessionState.ENDED:
        raise SessionEndedError(session.name)
    async with contextlib.aclosing(await link(places, session.id, session.mode)) as host:
        await host.ask(Say(n=0, session=session.id, waiting=waiting, done=done))


async def interrupt(places: Places, session: Session) -> None:
    """End the agent's turn.

    Raises:
        UnableError: if this kind of agent cannot be interrupted.
        SessionEndedError, HostUnreachableError: if nobody is there to take it.
    """
    await _do(places, session, Interrupt())


async def answer(places: Places, session: Session, answer: Answer) -> None:
    """Carry *answer* to the agent that asked.

    Raises:
        RequestClosedError, StaleRequestError, RequestNotFoundError: if this is not what the agent waits for.
        UnableError: if it does not take this answer.
        SessionEndedError, HostUnreachableError: if nobody is there to take it.
    """
    await _do(places, session, answer)


async def stop(places: Places, session: Session, grace_s: float = 5.0) -> None:
    """Ask the agent to finish, end it after *grace_s* seconds, and return when it has ended.

    Raises:
        SessionEndedError, HostUnreachableError: if it does not run.
        TimedOutError: if it was told, and its end was not heard of.
    """
    facts = await asyncio.to_thread(Facts, places, session.id)
    await _do(places, session, Stop(grace_s=grace_s))
    deadline = time.monotonic() + grace_s + ENDING_S
    while not any(isinstance(event, SessionEnded) for event in await asyncio.to_thread(facts.more)):
        if time.monotonic() > deadline:
            raise TimedOutError(f"session {session.name!r} was told to stop and has not ended yet.")
        await asyncio.sleep(0.02)


async def restart(places: Places, session: Session, *, force: bool = False) -> None:
    """Start the agent again, with its conversation where its backend can; id and log stay, the generation is the next.

    Raises:
        RefusedError: if it runs, and *force* does not say to stop it first; or if it is what a folder's own config made
            of its agent, and that counts no more.
        KasmonError: as `begin` does.
    """
    if session.adopted:
        raise RefusedError(
            f"session {session.name!r} is of your own tmux: kasmon starts nothing there.",
            hint=f"Start it there, then `kasmon adopt {session.adopted}`.",
        )
    await asyncio.to_thread(lambda: check_brought(places, launch_of(places, session.id)))
    if session.state in ALIVE:
        if not force:
            raise RefusedError(
                f"session {session.name!r} is {session.state}: it runs.",
                hint=f"Stop it first: `kasmon stop {session.id}`.",
            )
        with contextlib.suppress(SessionEndedError):
            await stop(places, session)
    elif session.state is SessionState.LOST and not await asyncio.to_thread(
        end_orphan, session.pid, session.pid_started, session.pid_boot
    ):
        raise RefusedError(f"the agent of session {session.name!r} lost its host and cannot be ended.")
    launch = await asyncio.to_thread(launch_of, places, session.id)
    launch = msgspec.structs.replace(
        launch,
        name=session.name,
        generation=session.generation + 1,
        resume=session.resume_id or launch.resume,
        argv=_resumed(launch, session.resume_id),
    )
    await asyncio.to_thread(write_private, places.launch(session.id), msgspec.json.encode(launch))
    await begin(places, launch, again=True)


def _resumed(launch: Launch, conversation: str | None) -> tuple[str, ...]:
    """The command line with which a terminal's agent goes on with *conversation*, where it is known how."""
    if launch.mode is not Mode.TMUX or not conversation or not launch.argv:
        return launch.argv
    return resumed(Path(launch.argv[0]).name, launch.argv, launch.resume, conversation) or launch.argv


async def pane(places: Places, session: Session, *, attaching: bool = False) -> PaneSeen:
    """What tmux says of the session's pane. *attaching*: for somebody who is going to sit down at it.

    Raises:
        InteractiveOnlyError: if it has none.
        UnavailableError: if tmux or its host is not there.
    """
    if session.mode is not Mode.TMUX:
        raise InteractiveOnlyError(session.name)
    async with contextlib.aclosing(await link(places, session.id, session.mode)) as host:
        seen = await host.ask(Look(n=0, session=session.id, attaching=attaching))
    if not isinstance(seen, PaneSeen):
        raise HostUnreachableError(session.name, "it did not say what its pane is like")
    return seen


async def attach_argv(places: Places, session: Session) -> list[str]:
    """The command line that attaches a terminal to the session's.

    Raises:
        InteractiveOnlyError, UnavailableError: as `pane`.
    """
    return list((await pane(places, session, attaching=True)).attach)


async def _receipt(places: Places, session: Session, wish: Prompt | Requeue) -> Receipt:
    """What became of a prompt until now, by the session's host that carries out *wish*."""
    receipt = (await _do(places, session, wish)).receipt
    if receipt is None:
        raise HostUnreachableError(session.name, "it did not say what became of the prompt")
    return receipt


async def _do(places: Places, session: Session, wish: Wish | Requeue) -> Done:
    """Have the session's host carry out *wish*."""
    if session.state is SessionState.ENDED:
        raise SessionEndedError(session.name)
    if session.state is SessionState.LOST:
        why = (session.end_why or "it is lost").rstrip(".")
        anew = "connects again" if machine_of(session.agent) else "starts it again"
        raise HostUnreachableError(session.name, f"{why}; `kasmon restart {session.id}` {anew}")
    async with contextlib.aclosing(await link(places, session.id, session.mode)) as host:
        limit_s = WAKING_S if session.state is SessionState.PAUSED else None  # else as long as the host says
        done = await host.ask(Do(n=0, session=session.id, wish=wish), limit_s)
    if not isinstance(done, Done):
        raise HostUnreachableError(session.name, "it answered something else")
    return done
