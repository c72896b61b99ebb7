"""Change a session's entry in the list: its name, its tags, whether its result was viewed, and its removal."""

import contextlib
import shlex
import time
from collections.abc import Callable, Iterable

import msgspec

from kasmon.config.agent_address import there
from kasmon.errors import KasmonError, RefusedError, TimedOutError, UnavailableError, UsageError
from kasmon.host.rpc.connect import reach_running_tmux_host
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.host.rpc.frames import NumberedFrame, ReleasePane, RenameWindow
from kasmon.model.commands import Mode
from kasmon.model.events import SessionForgotten, SessionRenamed, SessionTagged, SessionViewed
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.store.terminal_record import forget as forget_record
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.sessions.names import announce, check_name, check_tags, note
from kasmon.supervisor.sessions.start import forget_prompt


@dispatch
async def rename(paths: Paths, session: Session, name: str) -> str:
    """Rename the session, and return the name as displayed from now on.

    Raises `UsageError` if the name is invalid, `NameTakenError` if another session has it.
    """
    clean = check_name(name)
    fact = SessionRenamed(at=time.time(), session=session.id, name=clean)
    await run_in_thread(announce, paths, fact)
    if session.mode is Mode.TMUX:
        with contextlib.suppress(KasmonError):  # a title is a courtesy: the host takes the new name when it starts
            await _ask_running_host(paths, RenameWindow(n=0, session=session.id, name=clean))
    return clean


@rename.elsewhere
async def _rename_there(paths: Paths, session: Session, name: str) -> str:
    clean = check_name(name)
    await _run_there(paths, session, "rename", clean, until=lambda now: now is None or now.name == clean)
    return clean


async def tag(paths: Paths, session: Session, added: Iterable[str] = (), removed: Iterable[str] = ()) -> str:
    """Add and remove tags, and return a sentence with the tags that the session has from now on.

    Raises `UsageError` if a tag is invalid, or both added and removed, or the session would have too many.
    """
    added, removed = check_tags(added), check_tags(removed)
    if both := set(added).intersection(removed):
        raise UsageError(f"the tag {min(both)!r} is both added and removed.", hint="Give it once.")
    tags = tuple(sorted({*session.tags, *added} - {*removed}))
    if added:
        check_tags(tags)
    await _change_tags(paths, session, added, removed, tags)
    return f"tags: {', '.join(tags)}" if tags else "no tags"


@dispatch
async def _change_tags(
    paths: Paths, session: Session, added: tuple[str, ...], removed: tuple[str, ...], tags: tuple[str, ...]
) -> None:
    if tags != session.tags:
        fact = SessionTagged(at=time.time(), session=session.id, added=added, removed=removed)
        await run_in_thread(note, paths, fact)


@_change_tags.elsewhere
async def _change_tags_there(
    paths: Paths, session: Session, added: tuple[str, ...], removed: tuple[str, ...], tags: tuple[str, ...]
) -> None:
    arguments = [*(f"--add={each}" for each in added), *(f"--remove={each}" for each in removed)]
    await _run_there(paths, session, "tag", *arguments, until=lambda now: now is None or now.tags == tags)


async def mark_viewed(paths: Paths, session: Session) -> None:
    """Log that the user viewed the result of *session*, unless that is logged already."""
    if session.is_unviewed:
        await _mark_viewed(paths, session)


@dispatch
async def _mark_viewed(paths: Paths, session: Session) -> None:
    await run_in_thread(note, paths, SessionViewed(at=time.time(), session=session.id))


@_mark_viewed.elsewhere
async def _mark_viewed_there(paths: Paths, session: Session) -> None:
    await _run_there(paths, session, "mark", until=lambda now: now is None or not now.is_unviewed)


async def forget(paths: Paths, session: Session, *, deletes_conversation: bool = False) -> str:
    """Remove an ended session from the list, with its variables, first prompt and dead pane; its log stays.

    With *deletes_conversation*, its agent first deletes its own conversation; if it does not, nothing is removed.

    A session in the user's own tmux is only released: nothing there changes. If its sandbox worked on a copy of its
    folder, and the copy differs from the folder, the copy stays. Its path is returned, else "".

    Raises:
        RefusedError: if its agent runs, or may run.
        KasmonError: as `stored_conversations.delete_conversation`, with *deletes_conversation*.
    """
    if session.state in ALIVE and not session.adopted:
        raise RefusedError(
            f"cannot remove session {session.name!r}: it is {session.state}.",
            hint=f"Stop it first: `kasmon stop {session.id}`.",
        )
    return await _forget(paths, session, deletes_conversation)


@dispatch
async def _forget(paths: Paths, session: Session, deletes_conversation: bool) -> str:
    if deletes_conversation:
        from kasmon.supervisor.recovery.stored_conversations import delete_conversation  # rarely needed

        await delete_conversation(paths, session)
    if session.mode is Mode.TMUX:
        with contextlib.suppress(UnavailableError, TimedOutError):  # then its pane is gone, or goes with its server
            await _ask_running_host(paths, ReleasePane(n=0, session=session.id))
    kept = ""
    if session.sandbox and session.mode is not Mode.INTERPRETER:
        from kasmon.sandbox.agent import launch  # only imported if there was a sandbox

        with contextlib.suppress(KasmonError):
            kept = await run_in_thread(launch.forget, paths, session.id)
    elif session.mode is Mode.INTERPRETER:
        from kasmon.supervisor.sandboxes.create import remove_sandbox  # likewise

        kept = await run_in_thread(remove_sandbox, paths, session.id)
    await run_in_thread(_remove_from_list, paths, session.id)
    return kept


@_forget.elsewhere
async def _forget_there(paths: Paths, session: Session, deletes_conversation: bool) -> str:
    arguments = ["--conversation"] * deletes_conversation
    removed = await _run_there(paths, session, "rm", *arguments, until=lambda now: now is None)
    kept = msgspec.json.decode(removed, type=_Removal).kept
    return there(session.via, kept) if kept else ""


class _Removal(msgspec.Struct, frozen=True):
    """What `kasmon rm --json` prints."""

    kept: str | None = None


async def _run_there(
    paths: Paths, session: Session, command: str, *arguments: str, until: Callable[[Session | None], bool]
) -> bytes:
    from kasmon.supervisor.machines.delegation import run_there  # only for sessions of other machines

    return await run_there(paths, session, command, session.id, *arguments, until=until)


def copy_stays(path: str) -> str:
    """Return the message to the user about a copy that `forget` left at *path*."""
    return f"Its work is in a copy of its folder, which is kept: {path}. `rm -r {shlex.quote(path)}` deletes it."


async def _ask_running_host(paths: Paths, frame: NumberedFrame) -> None:
    """Send *frame* to the shared tmux host, if it runs; it is not started for this."""
    async with reach_running_tmux_host(paths) as host:
        await host.ask(frame)


def _remove_from_list(paths: Paths, session: SessionId) -> None:
    note(paths, SessionForgotten(at=time.time(), session=session))
    paths.environment(session).unlink(missing_ok=True)
    forget_prompt(paths, session)
    forget_record(paths.record(session))
    with contextlib.suppress(KasmonError, OSError):  # a rule for a session that is gone applies to nothing
        from kasmon.store.rules import RuleBook  # here: it takes 5 ms to load, and `new` imports this module

        RuleBook(paths.rules).drop_session(session)
