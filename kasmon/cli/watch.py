"""`kasmon ls --watch`: follow the sessions' logs. It writes nothing."""

import asyncio
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.cli.ls import chosen, drawn, is_utf8, states_in
from kasmon.cli.output.console import print_json, say
from kasmon.cli.output.json_objects import session_object
from kasmon.cli.output.table import last_words, state_words
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import clock
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.wait import fleets

LOOK_S: Final = 0.5
"""How often the reader of stdout is checked, in seconds."""


def watch(
    states: str | None, wave: int | None, machine: str = "", tags: str | None = None, *, wants_json: bool
) -> None:
    """Print the sessions, then their changes, until interrupted.

    For people, the table once, then a line for each session whose state or last line changed. With *wants_json*, the
    whole answer again, one object a line.

    Raises:
        UsageError: if there is no such state, or one of *tags* is no tag.
        NotFoundError: if no such machine is registered.
    """
    asyncio.run(_watch(partial(chosen, states=states_in(states), wave=wave, machine=machine, tags=tags), wants_json))


async def _watch(choose: Callable[[Fleet], Sequence[Session]], wants_json: bool) -> None:
    """Raise `BrokenPipeError` when the reader of stdout is gone: the next change may be far away."""
    printing = asyncio.create_task(_print(choose, wants_json))
    left = asyncio.create_task(_wait_for_reader_exit())
    try:
        await asyncio.wait((printing, left), return_when=asyncio.FIRST_COMPLETED)
        if not printing.done():
            raise BrokenPipeError
        printing.result()
    finally:
        await cancel_and_wait(printing, left)


async def _wait_for_reader_exit() -> None:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups alone
    while not poll.poll(0):  # noqa: ASYNC110 - no event reports it: asyncio does not report errors alone
        await asyncio.sleep(LOOK_S)


async def _print(choose: Callable[[Fleet], Sequence[Session]], wants_json: bool) -> None:
    before: dict[SessionId, Session] | None = None
    async with fleets(user_paths()) as changes:
        async for fleet in changes:
            sessions = choose(fleet)
            now = {session.id: session for session in sessions}
            if wants_json:
                print_json(sessions=[session_object(session) for session in sessions])
            elif before is None:
                say(*drawn(fleet, sessions))
            else:
                say(*changed_lines(before, now, fleet.at))
            before = now


def changed_lines(before: Mapping[SessionId, Session], now: Mapping[SessionId, Session], at: float) -> list[str]:
    """Return a line for each session that was added, removed or changed."""
    time = clock(at)
    utf8 = is_utf8()
    lines = [
        f"{time}  {state_words(session, utf8=utf8)}  {session.label}  {last_words(session)}".rstrip()
        for session in now.values()
        if _read(session) != _read(before.get(session.id))
    ]
    return lines + [f"{time}  gone  {session.label}" for session in before.values() if session.id not in now]


def _read(session: Session | None) -> object:
    return session and (session.state, session.asking, session.name, last_words(session))
