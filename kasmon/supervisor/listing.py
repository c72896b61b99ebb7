"""A session's place on the list: another name, or none any more."""

import asyncio
import contextlib
import shlex
import time

from kasmon.errors import KasmonError, RefusedError, TimedOutError, UnavailableError
from kasmon.host.client import HostLink
from kasmon.host.wire import Forget, Numbered, Rename
from kasmon.model.command import Mode
from kasmon.model.event import SessionForgotten, SessionRenamed
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import ALIVE
from kasmon.paths import Places
from kasmon.store.record import forget as forget_record
from kasmon.store.rules import RuleBook
from kasmon.supervisor.begin import forget_prompt
from kasmon.supervisor.names import announce, note, proper


async def rename(places: Places, session: Session, name: str) -> str:
    """Give the session another name, and return it as it is shown from now on.

    Raises:
        UsageError: if it is no proper name.
        NameTakenError: if another session has it.
    """
    clean = proper(name)
    fact = SessionRenamed(at=time.time(), session=session.id, name=clean)
    await asyncio.to_thread(announce, places, fact)
    if session.mode is Mode.TMUX:
        with contextlib.suppress(KasmonError):  # a title is a courtesy: the host takes the name when it starts
            await _tell_running_host(places, Rename(n=0, session=session.id, name=clean))
    return clean


async def forget(places: Places, session: Session) -> str:
    """Take an ended session off the list, with its variables, its first prompt and its dead pane; its log stays.

    One of the user's own tmux is let go as it is: nothing there changes. Where its sandbox worked on a copy of its
    folder, and not all in it is as it is there, the copy stays: its path, else "".

    Raises:
        RefusedError: if its agent runs, or may.
    """
    if session.state in ALIVE and not session.adopted:
        raise RefusedError(
            f"session {session.name!r} is {session.state}, so it is not forgotten.",
            hint=f"Stop it first: `kasmon stop {session.id}`.",
        )
    if session.mode is Mode.TMUX:
        with contextlib.suppress(UnavailableError, TimedOutError):  # then its pane is gone, or goes with its server
            await _tell_running_host(places, Forget(n=0, session=session.id))
    kept = ""
    if session.sandbox and session.mode is not Mode.INTERPRETER:
        from kasmon.sandbox import inmate  # only where there was a sandbox

        with contextlib.suppress(KasmonError):
            kept = await asyncio.to_thread(inmate.forget, places, session.id)
    elif session.mode is Mode.INTERPRETER:
        from kasmon.supervisor.housing import cleared  # likewise

        kept = await asyncio.to_thread(cleared, places, session.id)
    await asyncio.to_thread(_strike_off, places, session.id)
    return kept


def copy_stays(path: str) -> str:
    """What a person is told of a copy that `forget` left at *path*."""
    return f"Its work lies in a copy of its folder, which stays: {path}. `rm -r {shlex.quote(path)}` deletes it."


async def _tell_running_host(places: Places, frame: Numbered) -> None:
    """Ask the shared tmux host, if there is one; none is started for this."""
    async with contextlib.aclosing(await HostLink.open(places.tmux_host_socket)) as host:
        await host.ask(frame)


def _strike_off(places: Places, session: SessionId) -> None:
    note(places, SessionForgotten(at=time.time(), session=session))
    places.environment(session).unlink(missing_ok=True)
    forget_prompt(places, session)
    forget_record(places.record(session))
    with contextlib.suppress(KasmonError, OSError):  # a rule for a session that is gone covers nothing
        RuleBook(places.rules).drop_session(session)
