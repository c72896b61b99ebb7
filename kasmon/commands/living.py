"""Verbs that change a session: `new`, `interrupt`, `stop`, `restart`, `rename`, `rm`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kasmon.commands.objects import answer, error_object, session_object
from kasmon.commands.output import note, say, tell
from kasmon.config import Config, load, resolve
from kasmon.errors import LaunchError, SessionNotFoundError, UsageError
from kasmon.model.command import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Places, expanded, places
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.local_config import for_session
from kasmon.supervisor.look import look_once


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about a new session."""

    name: str
    argv: Sequence[str] = ()
    agent: str = ""
    mode: str | None = None
    sandbox: str | None = None
    folder: str = ""
    prompt: str = ""
    beside: str | None = None
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    variables: Sequence[str] = ()
    agrees: bool = False


def new(wanted: Wanted, *, wants_json: bool) -> int:
    """Start a session and print its id; what became of it where it ended at once.

    Raises:
        KasmonError: why it cannot be started; what was begun is ended again.
    """
    from kasmon.supervisor.early import ended_at_once  # it looks at processes

    where = places()
    here = for_session(where, load(where), wanted.folder, wanted.agent)
    if here.notice:
        note(here.notice)
    config = here.config
    agrees = _shown(where, config, wanted)
    parent = None if wanted.beside is None else find(look_once(where), wanted.beside).id
    session = asyncio.run(
        verb.create(
            where,
            config,
            verb.NewSession(
                name=wanted.name,
                agent=wanted.agent,
                mode=mode_of(wanted.mode),
                argv=tuple(wanted.argv),
                workdir=wanted.folder,
                prompt=sys.stdin.read() if wanted.prompt == "-" else wanted.prompt,
                parent=parent,
                environment=tuple(wanted.variables),
                task=wanted.task,
                wave=wanted.wave,
                peers=wanted.peers,
                sandbox=wanted.sandbox,
                agrees=agrees,
            ),
        )
    )
    early = asyncio.run(ended_at_once(where, session))
    started = _seen(where, session)
    if wants_json:
        tell(answer(session=session_object(started)) | _failure(early))
    else:
        if started.fallback:
            note(f"{started.name!r} runs in {started.mode}: {started.fallback}.")
        say(session)
    return _told(early)


def _failure(early: Session | None) -> dict[str, Any]:
    """What a program is told of a session that failed at once."""
    return error_object(_early_end(early)) if early is not None and early.exit_code != 0 else {}


def _early_end(session: Session) -> LaunchError:
    """How *session*, which ended at once, is told: with its exit status and what it said."""
    said = (session.end_why or session.last_line).removeprefix("it ended at once").lstrip(": ")
    how = session.signal or (f"exit code {session.exit_code}" if session.exit_code is not None else "no exit code")
    return LaunchError(
        f"session {session.name!r} ended at once with {how}" + (f": {said}." if said else ", and said nothing."),
        hint=f"`kasmon read {session.id}` shows its last screen, `kasmon restart {session.id}` starts it again.",
    )


def _told(early: Session | None) -> int:
    """Say that a session ended at once, if it did; the exit code, a failure's unless its program succeeded."""
    if early is None:
        return 0
    end = _early_end(early)
    note(str(end))
    return 0 if early.exit_code == 0 else end.exit_code


def _shown(where: Places, config: Config, wanted: Wanted) -> bool:
    """Show what its sandbox would get, where it has one; whether the person agrees to what it is handed."""
    resolved = resolve(config, wanted.agent, wanted.mode, wanted.argv, sandbox=wanted.sandbox)
    if resolved.sandbox is None:
        return wanted.agrees
    from kasmon.supervisor import confining, offering  # only where there is a sandbox

    workdir = str(expanded(wanted.folder or ".").absolute())
    offering.must_carry(where, resolved, workdir)
    for line in confining.told(resolved, workdir):
        note(line)
    if wanted.agrees or confining.is_agreed(where, resolved) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return wanted.agrees
    sys.stderr.write("Hand it that? It is asked once for what the profile says. [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def mode_of(said: str | None) -> Mode | None:
    """The mode that --mode names.

    Raises:
        UsageError: if there is none of that name.
    """
    if said in (None, Mode.TMUX, Mode.SDK):
        return Mode(said) if said else None
    raise UsageError(f"there is no mode {said!r}.", hint="A session runs in tmux or sdk.")


def interrupt(wanted: str, run: str, *, wants_json: bool) -> None:
    """End the running turn; whatever it asks is withdrawn. In a sandbox of interpreters only *run*, where one is given.

    Raises:
        RefusedError: if that run is over, or there was none.
    """
    if not run:
        _act(wanted, verb.interrupt, "interrupted", wants_json=wants_json)
        return
    from kasmon.supervisor import sandboxes  # only where there is a sandbox

    _act(
        wanted,
        lambda where, session: sandboxes.interrupt(where, session, run=run),
        "interrupted",
        wants_json=wants_json,
    )


def stop(wanted: str, *, wants_json: bool) -> None:
    """End the agent; its log stays, and it can be restarted."""
    _act(wanted, verb.stop, "stopped", wants_json=wants_json)


def restart(wanted: str, *, wants_json: bool) -> int:
    """Start an ended session again, under the same id and log."""
    from kasmon.supervisor.early import ended_at_once  # it looks at processes

    where = places()
    session = find(look_once(where), wanted)

    async def run() -> Session | None:
        await verb.restart(where, session)
        return await ended_at_once(where, session.id)

    early = asyncio.run(run())
    now = _seen(where, session.id, session)
    if wants_json:
        tell(answer(session=session_object(now)) | _failure(early))
    else:
        say(f"{now.name} ({now.id}): restarted")
    return _told(early)


def rename(wanted: str, name: str, *, wants_json: bool) -> None:
    """Give a session another name."""
    _act(wanted, lambda where, session: verb.rename(where, session, name), "renamed", wants_json=wants_json)


def rm(wanted: str, *, wants_json: bool) -> None:
    """Take an ended session off the list; a copy of its folder that stays is named."""
    where = places()
    session = find(look_once(where), wanted)
    kept = asyncio.run(verb.forget(where, session))
    if wants_json:
        tell(answer(session=session_object(_seen(where, session.id, session)), kept=kept or None))
        return
    say(f"{session.name} ({session.id}): forgotten")
    if kept:
        note(verb.copy_stays(kept))


def _act(wanted: str, act: Callable[[Places, Session], Awaitable[object]], done: str, *, wants_json: bool) -> None:
    """Do *act* to the session *wanted*, and print what became of it.

    Raises:
        NotFoundError: if there is no such session.
        KasmonError: why it was not done.
    """
    where = places()
    session = find(look_once(where), wanted)

    async def run() -> None:
        await act(where, session)

    asyncio.run(run())
    now = _seen(where, session.id, session)
    if wants_json:
        tell(answer(session=session_object(now)))
    else:
        say(f"{now.name} ({now.id}): {done}")


def _seen(where: Places, session: SessionId, otherwise: Session | None = None) -> Session:
    """The session as it is now; *otherwise* where it is not there any more."""
    now = look_once(where).get(session) or otherwise
    if now is None:
        raise SessionNotFoundError(session)
    return now
