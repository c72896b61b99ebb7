"""Commands for one session: `new`, `adopt`, `attach`, `move`, `interrupt`, `stop`, `restart`, `rename`, `rm`."""

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn

import msgspec

from kasmon.cli.dashboard import no_screen
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.json_objects import answer, error_object, session_object
from kasmon.cli.output.table import aligned
from kasmon.config import Config, load, resolve
from kasmon.errors import (
    InteractiveOnlyError,
    LaunchError,
    PermissionModeError,
    SessionNotFoundError,
    UnavailableError,
    UsageError,
)
from kasmon.model.commands import Mode
from kasmon.model.evidence import AT_ONCE
from kasmon.model.pane_candidate import AdoptablePane
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths, expanded, places
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sessions import operations
from kasmon.supervisor.sessions.adopt import adopt as adopted
from kasmon.supervisor.sessions.adopt import foreign_panes
from kasmon.supervisor.sessions.folder_config import for_session

NOTICED: Final = (
    "Your tmux shows one more client in `list-clients`: kasmon's control client. Sizes, names, "
    "options and environment are unchanged; `kasmon rm` releases the pane."
)
"""The note to the user on an adoption."""
HEADS: Final = ("PANE", "TARGET", "AGENT", "RUNS", "SIZE", "WATCHED AS", "TITLE")


def ls_tmux(socket: str, *, wants_json: bool) -> None:
    """Print the panes of the user's own tmux.

    Raises:
        NotFoundError, TmuxError: if there is none.
    """
    panes = asyncio.run(foreign_panes(places(), socket))
    if wants_json:
        print_json(answer(panes=[msgspec.to_builtins(pane) | {"target": pane.target} for pane in panes]))
        return
    say(*aligned([HEADS, *(_row(pane) for pane in panes)]))


def adopt(target: str, name: str, socket: str, *, wants_json: bool) -> None:
    """Adopt the pane that *target* means, and print what its user will notice.

    Raises:
        KasmonError: why it cannot be adopted.
    """
    where = places()
    launch = asyncio.run(adopted(where, target, name, socket))
    session = look_once(where).get(launch.session)
    if session is None:
        raise SessionNotFoundError(launch.session)
    if wants_json:
        print_json(answer(session=session_object(session), noticed=NOTICED))
        return
    note(NOTICED)
    say(launch.session)


def _row(pane: AdoptablePane) -> tuple[str, ...]:
    size = f"{pane.width}x{pane.height}"
    return (pane.pane, clean_line(pane.target), pane.agent or "-", pane.command, size, pane.adopted or "-", pane.title)


def move(wanted: str, to: str, *, changes_permissions: bool, wants_json: bool) -> None:
    """Move the session *wanted* to the mode *to*, and print its state.

    If its permission mode cannot be kept, a user at a terminal is asked; *changes_permissions* agrees in advance.

    Raises:
        NotFoundError: if there is no such session.
        KasmonError: why it cannot be moved; it is unchanged then, unless the message differs.
    """
    from kasmon.supervisor.sessions.move import move as moved  # it inspects processes

    mode = mode_of(to)
    if mode is None:
        raise UsageError("`kasmon move` requires a mode.", hint="Pass --to tmux or --to sdk.")
    where = places()
    session = find(look_once(where), wanted)
    here = for_session(where, load(where), session.workdir, session.agent)
    if here.notice:
        note(here.notice)
    try:
        asyncio.run(moved(where, here.config, session, mode, changes_permissions=changes_permissions))
    except PermissionModeError as error:
        if wants_json or not _is_agreed(error):
            raise
        asyncio.run(moved(where, here.config, session, mode, changes_permissions=True))
    now = find(look_once(where), session.id)
    if wants_json:
        print_json(answer(session=session_object(now)))
    else:
        say(f"{now.id}: moved to {now.mode}")


def _is_agreed(error: PermissionModeError) -> bool:
    """Whether the user at this terminal agrees to another permission mode."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(f"{error.message} It would use the permission mode of its profile and its own settings.")
    sys.stderr.write("Move it anyway? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class NewSessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line's description of a new session."""

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
    public_variables: Sequence[str] = ()
    agrees: bool = False


def new(wanted: NewSessionOptions, *, wants_json: bool) -> int:
    """Start a session and print its id; report an immediate exit.

    Raises:
        KasmonError: why it cannot be started; everything begun is ended again.
    """
    from kasmon.cli.early_exit import find_early_exit  # it loads psutil

    where = places()
    here = for_session(where, load(where), wanted.folder, wanted.agent)
    if here.notice:
        note(here.notice)
    config = here.config
    agrees = _confirm_sandbox(where, config, wanted)
    parent = None if wanted.beside is None else find(look_once(where), wanted.beside).id
    session = asyncio.run(
        operations.create(
            where,
            config,
            operations.NewSession(
                name=wanted.name,
                agent=wanted.agent,
                mode=mode_of(wanted.mode),
                argv=tuple(wanted.argv),
                workdir=wanted.folder,
                prompt=sys.stdin.read() if wanted.prompt == "-" else wanted.prompt,
                parent=parent,
                environment=tuple(wanted.variables),
                public_environment=tuple(wanted.public_variables),
                task=wanted.task,
                wave=wanted.wave,
                peers=wanted.peers,
                sandbox=wanted.sandbox,
                agrees=agrees,
            ),
        )
    )
    early = asyncio.run(find_early_exit(where, session))
    started = _current(where, session)
    if wants_json:
        print_json(answer(session=session_object(started)) | _exit_error_object(early))
    else:
        if started.fallback:
            note(f"{started.name!r} runs in {started.mode}: {started.fallback}.")
        say(session)
    return _report_exit(early)


def _exit_error_object(early: Session | None) -> dict[str, Any]:
    """Return the JSON error for a session that failed immediately."""
    return error_object(_exit_error(early)) if early is not None and early.exit_code != 0 else {}


def _exit_error(session: Session) -> LaunchError:
    """Return the error for *session*, which ended immediately: with its exit status and its output."""
    said = (session.end_why or session.last_line).removeprefix(AT_ONCE).lstrip(": ")
    how = session.signal or (f"exit code {session.exit_code}" if session.exit_code is not None else "no exit code")
    return LaunchError(
        f"session {session.name!r} exited immediately with {how}" + (f": {said}." if said else " and printed nothing."),
        hint=f"`kasmon read {session.id}` shows its last screen, `kasmon restart {session.id}` starts it again.",
    )


def _report_exit(early: Session | None) -> int:
    """Print that a session ended immediately, if it did; return the exit code, 0 if its program succeeded."""
    if early is None:
        return 0
    end = _exit_error(early)
    note(str(end))
    return 0 if early.exit_code == 0 else end.exit_code


def _confirm_sandbox(where: Paths, config: Config, wanted: NewSessionOptions) -> bool:
    """Print what the session's sandbox would get, if it has one; return whether the user agrees to its files."""
    resolved = resolve(config, wanted.agent, wanted.mode, wanted.argv, sandbox=wanted.sandbox)
    if resolved.sandbox is None:
        return wanted.agrees
    from kasmon.supervisor.sandboxes import agent_policy, availability  # only where there is a sandbox

    workdir = str(expanded(wanted.folder or ".").absolute())
    availability.must_carry(where, resolved, workdir)
    for line in agent_policy.told(resolved, workdir):
        note(line)
    if wanted.agrees or agent_policy.is_agreed(where, resolved) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return wanted.agrees
    sys.stderr.write("Give the sandbox these files and credentials? This is asked once per profile. [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def mode_of(said: str | None) -> Mode | None:
    """Return the mode that --mode names.

    Raises:
        UsageError: if there is none of that name.
    """
    if said in (None, Mode.TMUX, Mode.SDK):
        return Mode(said) if said else None
    raise UsageError(f"unknown mode {said!r}.", hint="Use tmux or sdk.")


def interrupt(wanted: str, run: str, *, wants_json: bool) -> None:
    """End the running turn; its open requests are withdrawn. In an interpreter sandbox end only *run*, if given.

    Raises:
        TimedOutError: if the agent's turn does not end.
        RefusedError: if that run is over, or there was none.
    """
    if not run:
        _execute(wanted, operations.interrupt, "interrupted", wants_json=wants_json)
        return
    from kasmon.supervisor.sandboxes import operations as sandboxes  # only where there is a sandbox

    _execute(
        wanted,
        lambda where, session: sandboxes.interrupt(where, session, run=run),
        "interrupted",
        wants_json=wants_json,
    )


def continue_stopped(wanted: str, *, wants_json: bool) -> None:
    """Continue an agent that Ctrl-Z stopped."""
    _execute(wanted, operations.continue_stopped, "continued", wants_json=wants_json)


def stop(wanted: str, *, wants_json: bool) -> None:
    """End the agent; its log stays, and it can be restarted."""
    _execute(wanted, operations.stop, "stopped", wants_json=wants_json)


def restart(wanted: str, *, wants_json: bool) -> int:
    """Start an ended session again, under the same id and log."""
    from kasmon.cli.early_exit import find_early_exit  # it loads psutil

    where = places()
    session = find(look_once(where), wanted)

    async def run() -> Session | None:
        await operations.restart(where, session)
        return await find_early_exit(where, session.id)

    early = asyncio.run(run())
    now = _current(where, session.id, session)
    if wants_json:
        print_json(answer(session=session_object(now)) | _exit_error_object(early))
    else:
        say(f"{now.name} ({now.id}): restarted")
    return _report_exit(early)


def rename(wanted: str, name: str, *, wants_json: bool) -> None:
    """Rename a session."""
    _execute(wanted, lambda where, session: operations.rename(where, session, name), "renamed", wants_json=wants_json)


def mark(wanted: str, *, wants_json: bool) -> None:
    """Mark a session as viewed."""
    _execute(wanted, operations.mark_viewed, "viewed", wants_json=wants_json)


def rm(wanted: str, *, wants_json: bool) -> None:
    """Remove an ended session from the list; print the path of a copy of its folder that stays."""
    where = places()
    session = find(look_once(where), wanted)
    kept = asyncio.run(operations.forget(where, session))
    if wants_json:
        print_json(answer(session=session_object(_current(where, session.id, session)), kept=kept or None))
        return
    say(f"{session.name} ({session.id}): removed")
    if kept:
        note(operations.copy_stays(kept))


def _execute(wanted: str, act: Callable[[Paths, Session], Awaitable[object]], done: str, *, wants_json: bool) -> None:
    """Call *act* on the session *wanted*, and print the text that it returns, else *done*.

    Raises:
        NotFoundError: if there is no such session.
        KasmonError: why it was not done.
    """
    where = places()
    session = find(look_once(where), wanted)

    async def run() -> object:
        return await act(where, session)

    outcome = asyncio.run(run())
    now = _current(where, session.id, session)
    if wants_json:
        print_json(answer(session=session_object(now)))
    else:
        say(f"{now.name} ({now.id}): {outcome if isinstance(outcome, str) else done}")


def _current(where: Paths, session: SessionId, otherwise: Session | None = None) -> Session:
    """Return the current state of the session; *otherwise* if it no longer exists."""
    now = look_once(where).get(session) or otherwise
    if now is None:
        raise SessionNotFoundError(session)
    return now


def attach(wanted: str) -> NoReturn:
    """Replace this process by `tmux attach`; it ends when the user detaches, and the session keeps running.

    Raises:
        NotFoundError: if there is no such session.
        InteractiveOnlyError: if it is a structured one.
        UsageError: if the terminal cannot show it.
        RefusedError, UnavailableError: if it has ended, or tmux is missing.
    """
    where = places()
    session = find(look_once(where), wanted)
    if session.mode is not Mode.TMUX:
        error = InteractiveOnlyError(session.name)
        error.hint = (
            f"`kasmon send {session.id}` sends a prompt; `kasmon move {session.id} --to tmux` moves it to a terminal."
        )
        raise error
    argv = asyncio.run(operations.attach_argv(where, session))
    if why := no_screen(os.environ):
        raise UsageError(f"cannot attach to {session.name!r}: {why}.", hint=f"In a terminal: {shlex.join(argv)}")
    if os.environ.get("TMUX"):
        note("this is a tmux inside your tmux; Ctrl+] or F12 detaches.")
    with contextlib.suppress(UnavailableError):  # a full disk must not prevent attaching
        asyncio.run(operations.mark_viewed(where, session))
    sys.stdout.flush()
    os.execvp(argv[0], argv)
