"""An agent is started, for the first time or again: its host is reached, and the log says that it runs."""

import asyncio
import contextlib
import os
import time
from typing import Final

import msgspec

from kasmon.backends.surroundings import encoded, inherited, own_prefixes
from kasmon.config import in_force
from kasmon.errors import (
    HostUnreachableError,
    KasmonError,
    LaunchError,
    SessionEndedError,
    TimedOutError,
    UnavailableError,
)
from kasmon.host.alive import HostLock, lock_holder
from kasmon.host.book import Book, advanced, begun, wanted
from kasmon.host.client import link
from kasmon.host.spawn import SERVICES, last_words
from kasmon.host.wire import Start
from kasmon.model.command import Launch, Mode
from kasmon.model.event import LineFound, SessionEnded, SessionStarted
from kasmon.model.permission import SessionId
from kasmon.model.state import SessionState
from kasmon.paths import Places, write_private
from kasmon.supervisor.facts import Facts

START_S: Final = 60.0
"""How long an agent may take until its log says that it runs, in seconds: longer than any kind of them needs for its
introduction. Where the config gives that more, this grows with it."""
LODGED_S: Final = 240.0
"""So much longer it may take where a sandbox has to begin that is no jail: the first virtual machine of its size."""


async def begin(places: Places, launch: Launch, *, again: bool = False) -> None:
    """Start the agent of *launch* and return when it runs, or has run.

    Where it does not start, the session has ended and says why. One that was started meanwhile is not started twice.

    Args:
        places: where the session is kept.
        launch: what its `launch.json` says.
        again: it ran before, so its last host may still be on its way out.

    Raises:
        KasmonError: why it could not be started.
        TimedOutError: if nothing was heard of it; it may still start.
    """
    try:
        facts = await asyncio.to_thread(Facts, places, launch.session)
        now, _ = await asyncio.to_thread(lambda: advanced(places, begun(places, launch.session)))
        if now.generation < launch.generation:
            await _start(places, launch, facts, again)
        await asyncio.to_thread(forget_prompt, places, launch.session)
    except TimedOutError:
        raise
    except KasmonError as error:
        await asyncio.to_thread(_leave_ended, places, launch, error.message)
        raise
    except OSError as error:
        raise UnavailableError(f"cannot read what became of {launch.name!r}: {error.strerror or error}.") from error


def forget_prompt(places: Places, session: SessionId) -> None:
    """Take the first prompt out of the session's `launch.json`; the log has it, and knows what became of it.

    It stays there until the agent runs: another try at a start that failed needs it.
    """
    with contextlib.suppress(KasmonError, OSError):  # it is a courtesy, and the file is ours alone
        launch = wanted(places, session)
        if launch.prompt:
            spent = msgspec.structs.replace(launch, prompt="")
            write_private(places.launch(session), msgspec.json.encode(spent))


async def _start(places: Places, launch: Launch, facts: Facts, again: bool) -> None:
    unreachable: KasmonError | None = None
    try:
        host = await link(places, launch.session, launch.mode, start=again)
        try:
            if launch.mode is Mode.TMUX:
                passed = inherited(own_prefixes(launch.argv), os.environ) | _credentials(places, launch)
                await host.ask(Start(n=0, session=launch.session, variables=encoded(passed)), START_S)
        finally:
            await host.aclose()
    except (SessionEndedError, HostUnreachableError) as error:  # it may be over already: the log knows
        unreachable = error
    await _hear(places, launch, facts, unreachable)


async def _hear(places: Places, launch: Launch, facts: Facts, unreachable: KasmonError | None) -> None:
    """Wait until *facts* say that the agent runs, or never will."""
    is_tmux = launch.mode is Mode.TMUX
    lock = places.tmux_host_lock if is_tmux else places.host_lock(launch.session)
    limit_s = START_S + ((await asyncio.to_thread(in_force, places)).limits.handshake_s or 0.0)
    limit_s += 0.0 if launch.sandbox in (None, "jail") else LODGED_S
    deadline, pause_s = time.monotonic() + limit_s, 0.01
    while True:
        is_hosted = unreachable is None and await asyncio.to_thread(lock_holder, lock) is not None
        for event in await asyncio.to_thread(facts.more):
            if isinstance(event, SessionStarted | LineFound):
                return
            if isinstance(event, SessionEnded):
                why = (event.why or "it ended at once").rstrip(".")
                raise LaunchError(f"session {launch.name!r} could not be started: {why}.")
        if not is_hosted:
            said = await asyncio.to_thread(
                last_words, places.tmux_host_log if is_tmux else places.host_log(launch.session)
            )
            raise unreachable or HostUnreachableError(launch.name, said or "it ended without a word")
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"session {launch.name!r} did not start within {limit_s:g} s.",
                hint="`kasmon show` tells how it goes on.",
            )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.2)


def _credentials(places: Places, launch: Launch) -> dict[str, str]:
    """The variables of ours that the credentials of its sandbox are taken from, or that it is reached by elsewhere."""
    if launch.sandbox is None:
        return {}
    from kasmon.sandbox.inmate import policy_of  # only where there is a sandbox

    wanted = [credential.variable for credential in policy_of(places, launch.session).credentials]
    if launch.sandbox == "e2b":
        wanted += [name for name in os.environ if name.startswith(SERVICES)]
    return {name: os.environ[name] for name in wanted if name in os.environ}


def _leave_ended(places: Places, launch: Launch, why: str) -> None:
    """Write down that the session ended, where no host is there to do it."""
    lock = HostLock(places.host_lock(launch.session))
    with contextlib.suppress(OSError):  # nothing can be written: then the list shows it as lost
        if not lock.take():
            return
        try:
            book = Book(places, launch.session)
            may_live_on = bool(launch.machine) and book.session.state is SessionState.LOST
            if book.session.state is not SessionState.ENDED and not may_live_on:
                book.append(SessionEnded(at=time.time(), why=why, never_began=True))
        finally:
            lock.let_go()
