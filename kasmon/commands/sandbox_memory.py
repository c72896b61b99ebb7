"""Verbs about sandboxes and what they remember: `sandbox ls`, `show`, `pause` and `fork`."""

import asyncio
import time

import msgspec

from kasmon.commands.objects import answer
from kasmon.commands.output import note, say, tell
from kasmon.commands.sandbox_report import about, row, sandbox_object, snapshot_words
from kasmon.errors import SessionNotFoundError, UsageError
from kasmon.model.command import Mode, Sleep
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import REMEMBERING
from kasmon.model.session import Session
from kasmon.model.snapshot import origin_words
from kasmon.paths import Places, places
from kasmon.supervisor import sandboxes
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once
from kasmon.supervisor.remembered import Memory


def list_all(*, wants_json: bool) -> None:
    """List the sandboxes."""
    where = places()
    memory, now = Memory(where), time.time()
    sessions = [(session, memory.of(session)) for session in sandboxed(where)]
    if wants_json:
        tell(answer(sandboxes=[sandbox_object(session, remembered) for session, remembered in sessions]))
        return
    for session, remembered in sessions:
        say(row(session, remembered, now))


def show(name: str, *, wants_json: bool) -> None:
    """Show all that is known of one sandbox; its memory on disk is read through for that.

    Raises:
        UnableError: if the session is no sandbox of interpreters.
    """
    where = places()
    session = find(look_once(where), name)
    sandboxes.must_be_sandbox(session)
    remembered, points = Memory(where).of(session, whole=True), session.housing.checkpoints if session.housing else ()
    if wants_json:
        kept = [msgspec.to_builtins(point) for point in points]
        tell(answer(session=sandbox_object(session, remembered) | {"checkpoints_kept": kept}))
        return
    for line in about(session, remembered, points, time.time()):
        say(line)


def pause(name: str, *, to_disk: bool, to_hold: bool, wants_json: bool) -> None:
    """Put a sandbox to sleep: on disk where its tier keeps memory there, unless it is *to_hold* its memory.

    Raises:
        UsageError: if it is to do both.
    """
    if to_disk and to_hold:
        raise UsageError("its memory is either on disk or held.", hint="Say one of --disk and --hold.")
    where = places()
    session = find(look_once(where), name)
    to_disk = to_disk or (not to_hold and session.sandbox in REMEMBERING)
    asyncio.run(sandboxes.keep(where, session, Sleep(to_disk=to_disk)))
    now = seen(where, session.id)
    remembered = Memory(where).of(now)
    if wants_json:
        tell(answer(session=sandbox_object(now, remembered), lost=None))
        return
    held = now.housing is not None and now.housing.held
    where_words = ["its memory held by its processes"] if held else []
    kept = "at the service" if session.sandbox == "e2b" else "on disk"
    where_words += [f"its memory {kept} ({snapshot_words(each, time.time())})" for each in remembered.snapshots]
    say(f"{session.name} ({session.id}): {', '.join(['paused', *where_words])}")


def fork(name: str, new_name: str, at: str, *, wants_json: bool) -> None:
    """Make another sandbox that begins where this one is."""
    where = places()
    session = find(look_once(where), name)
    made = asyncio.run(sandboxes.fork(where, session, new_name, at))
    if wants_json:
        new = seen(where, made.session)
        tell(answer(session=sandbox_object(new, Memory(where).of(new)), lost=made.lost or None))
        return
    say(made.session)
    note(f"{seen(where, made.session).name} begins as {session.name}, {origin_words(made.origin)}.")
    if made.lost:
        note(f"{session.name} lost something by that: {made.lost.rstrip('.')}.")


def seen(where: Places, session: SessionId) -> Session:
    """The session as it is now.

    Raises:
        SessionNotFoundError: if it is not there any more.
    """
    now = look_once(where).get(session)
    if now is None:
        raise SessionNotFoundError(session)
    return now


def sandboxed(where: Places) -> list[Session]:
    """All sessions of interpreters."""
    return [session for session in look_once(where).sessions if session.mode is Mode.INTERPRETER]
