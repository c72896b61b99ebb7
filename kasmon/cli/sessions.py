"""Commands for sessions: `new`, `adopt`, `attach`, `move`, `interrupt`, `stop`, `restart`, `rename`, `rm`."""

import contextlib
import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec

from kasmon import launch
from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.dashboard import no_screen
from kasmon.cli.output.console import accepts, note, print_json, say
from kasmon.cli.output.json_objects import answer, error_object, session_object
from kasmon.cli.output.table import aligned
from kasmon.cli.session_selection import (
    Act,
    Everything,
    InStates,
    OfPlan,
    Outcome,
    Sessions,
    SessionSelection,
    Yes,
    names_from_stdin,
    run_on_each,
    run_side_by_side,
)
from kasmon.config import load, resolve
from kasmon.config.profile import ResolvedProfile, programs
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    PermissionModeError,
    SessionNotFoundError,
    UnavailableError,
    UsageError,
)
from kasmon.host.journal.session_log import advanced, begun
from kasmon.host.rpc import event_loop
from kasmon.host.rpc.event_loop import in_thread, sleep
from kasmon.model.commands import Mode
from kasmon.model.evidence import AT_ONCE
from kasmon.model.pane_candidate import AdoptablePane
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths, expanded, places
from kasmon.process_identity import HAS_PROC, fields
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.supervisor.worktrees.shared_checkout import describe_sharers, list_sharers

NOTICED: Final = (
    "Your tmux shows one more client in `list-clients`: kasmon's control client. Sizes, names, "
    "options and environment are unchanged; `kasmon rm` releases the pane."
)
"""The note to the user on an adoption."""
BUSY: Final = ALIVE - {SessionState.IDLE, SessionState.PAUSED, SessionState.STANDBY}
NOT_ALIVE: Final = frozenset(SessionState) - ALIVE
HEADS: Final = ("PANE", "TARGET", "AGENT", "RUNS", "SIZE", "WATCHED AS", "TITLE")

LIMIT_S: Final = 1.0
"""A program that is busy for this long counts as running, in seconds."""
REST_S: Final = 0.1
"""A program that waits for this long counts as running, in seconds."""
LOOK_S: Final = 0.02
UP: Final = frozenset({SessionState.IDLE, SessionState.ASKING, SessionState.LIMITED})
_LAUNCHER: Final = os.fsencode(launch.__file__)
RESTING: Final = frozenset({"sleeping", "stopped", "idle"})


def ls_tmux(socket: str, *, wants_json: bool) -> None:
    """Print the panes of the user's own tmux.

    Raises:
        NotFoundError, TmuxError: if there is none.
    """
    import asyncio

    from kasmon.supervisor.sessions.adopt import foreign_panes

    panes = asyncio.run(foreign_panes(places(), socket))
    if wants_json:
        print_json(answer(panes=[msgspec.to_builtins(pane) | {"target": pane.target} for pane in panes]))
        return
    say(*aligned([HEADS, *(_row(pane) for pane in panes)]))


def adopt(
    target: Annotated[str, Arg("SESSION, SESSION:WINDOW, SESSION:WINDOW.PANE or %PANE in your own tmux.")],
    /,
    *,
    name: Annotated[str, Arg("Session name (default: the name of the tmux session).")] = "",
    socket: Annotated[str, Arg("Socket of your tmux server (default: the current one, or tmux's default).")] = "",
    wants_json: Json = False,
) -> None:
    """Adopt a pane of your own tmux (`kasmon ls --tmux` lists them); kasmon never resizes, renames or ends it."""
    import asyncio

    from kasmon.supervisor.sessions.adopt import adopt as adopted

    where = places()
    launch = asyncio.run(adopted(where, target, name, socket))
    session = read_fleet(where).get(launch.session)
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


def move(
    wanted: SessionArgument,
    /,
    *,
    to: Annotated[Literal["tmux", "sdk"], Arg("Mode to move to.")],
    change_permissions: Annotated[bool, Arg("Move even if the permission mode cannot be carried over.")] = False,
    wants_json: Json = False,
) -> None:
    """Move a conversation between terminal and structured mode."""
    import asyncio

    from kasmon.supervisor.sessions.move import move as moved  # it inspects processes

    where = places()
    session = find(read_fleet(where), wanted)
    here = for_session(where, load(where), session.config_folder, session.agent)
    if here.notice:
        note(here.notice)
    try:
        asyncio.run(moved(where, here.config, session, Mode(to), changes_permissions=change_permissions))
    except PermissionModeError as error:
        if wants_json or not _is_agreed(error):
            raise
        asyncio.run(moved(where, here.config, session, Mode(to), changes_permissions=True))
    now = find(read_fleet(where), session.id)
    if wants_json:
        print_json(answer(session=session_object(now)))
    else:
        say(f"{now.id}: moved to {now.mode}")


def _is_agreed(error: PermissionModeError) -> bool:
    """Whether the user at this terminal agrees to another permission mode."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(f"{error.message} It would use the permission mode of its profile and its own settings.")
    return accepts("Move it anyway?", sys.stderr)


def new(
    name: Annotated[str, Arg("Session name (`-`: names from stdin, one a line).", hyphen=True)],
    /,
    *argv: Annotated[str, Arg("Program and arguments to run in tmux (after `--`).")],
    agent: Annotated[
        str,
        Arg(
            "Profile: claude, codex, opencode, gemini, amp, shell, scripted, or one from your config.",
            completer="agents",
        ),
    ] = "",
    mode: Annotated[str | None, Arg("tmux or sdk (default: the profile's, else tmux).")] = None,
    sandbox: Annotated[
        str | None,
        Arg(
            "Sandbox tier: `jail`, `microvm` or `e2b` (`kasmon doctor` lists which are available,"
            " and how to get the others); '' means none (default: the profile's)."
        ),
    ] = None,
    yes: Annotated[bool, Arg("Agree that the sandbox gets the profile's files and credentials.")] = False,
    folder: Annotated[str, Arg("Working directory (default: the current folder).", ("--dir",))] = "",
    worktree: Annotated[bool, Arg("Work in a new git worktree, on a branch of its own.")] = False,
    base: Annotated[str, Arg("What the worktree begins at: a branch, a tag, a commit, `pr:NUMBER`.")] = "",
    branch: Annotated[str, Arg("Branch of the worktree (default: `worktree.branch` of the config).")] = "",
    reuse_branch: Annotated[bool, Arg("Work on --branch although it exists.")] = False,
    in_folder: Annotated[bool, Arg("Work in the folder itself, whatever the config says.", ("--no-worktree",))] = False,
    prompt: Annotated[str, Arg("First prompt (`-`: from stdin).", hyphen=True)] = "",
    beside: Annotated[
        str | None, Arg("Open as an extra window of this session.", ("--in",), completer="sessions")
    ] = None,
    task: Annotated[int | None, Arg("Task number.")] = None,
    wave: Annotated[int | None, Arg("Wave number.")] = None,
    peers: Annotated[int | None, Arg("Number of sessions in the wave, including this one.")] = None,
    env: Annotated[
        list[str] | None,
        Arg(
            "Environment variable: NAME passes your value through; NAME=VALUE is visible in `ps`. The value is treated"
            " as secret: it is redacted in the log, and a sandbox that holds it is never paused to disk."
        ),
    ] = None,
    env_public: Annotated[list[str] | None, Arg("Environment variable whose value is not secret.")] = None,
    count: Annotated[
        int | None,
        Arg("Start this many sessions; `{n}` in NAME is the number of each (default: `-{n}` at its end).", at_least=1),
    ] = None,
    wants_json: Json = False,
) -> int:
    """Start a session and print its id; exit code 1 if its program exits immediately with an error."""
    is_one = count is None and name != "-"
    if name == "-" and (prompt == "-" or count is not None):
        raise UsageError("names from stdin cannot be combined with --count or --prompt -.", hint="Give one of them.")
    names = names_from_stdin() if name == "-" else [name] if count is None else numbered(name, count)
    where = places()
    here = for_session(where, load(where), folder, agent)
    if here.notice:
        note(here.notice)
    resolved = resolve(here.config, agent, mode, argv, sandbox=sandbox)
    wanted = NewSession(
        name=name,
        agent=agent,
        mode=mode_of(mode),
        argv=argv,
        workdir=folder,
        worktree=False if in_folder else worktree or None,
        base=base,
        branch=branch,
        reuses_branch=reuse_branch,
        agrees=_confirm_sandbox(where, resolved, folder, agrees=yes),
        parent=None if beside is None else find(read_fleet(where), beside).id,
        prompt=sys.stdin.read() if prompt == "-" else prompt,
        environment=tuple(env or ()),
        public_environment=tuple(env_public or ()),
        task=task,
        wave=wave,
        peers=peers,
        sandbox=sandbox,
    )

    async def start(name: str) -> tuple[SessionId, Session | None]:
        wanted_here = msgspec.structs.replace(wanted, name=name)
        session = await session_operations.create(where, here.config, wanted_here)
        return session, await find_early_exit(where, session)

    outcomes = run_side_by_side(names, start)
    if is_one and isinstance(outcomes[0], KasmonError):
        raise outcomes[0]
    fleet = read_fleet(where)
    results: list[dict[str, Any]] = []
    code = 0
    for outcome in outcomes:
        if isinstance(outcome, KasmonError):
            note(f"{outcome.message} {outcome.hint}".strip())
            results.append({"session": None} | error_object(outcome))
            code = max(code, outcome.exit_code)
            continue
        session, early = outcome
        started = find(fleet, session)
        results.append({"session": session_object(started)} | _exit_error_object(early))
        if not wants_json:
            if started.fallback:
                note(f"{started.name!r} runs in {started.mode}: {started.fallback}.")
            if (tree := started.worktree) is not None:
                branch_words = f"{'the new' if tree.is_new_branch else 'the'} branch {tree.branch}"
                note(f"{tree.path} is on {branch_words}, from {tree.base_name} ({tree.base[:12]}).")
                for remark in tree.remarks:
                    note(f"{remark}.")
            say(session)
        if sharers := list_sharers(started, fleet.sessions, programs(here.config)):
            note(f"{started.name!r}: {describe_sharers(sharers)}; give it its own by --worktree.")
        code = max(code, _report_exit(early))
    if wants_json:
        print_json(answer(**results[0]) if is_one else answer(results=results))
    return code


def numbered(name: str, count: int) -> list[str]:
    """Return *count* names: *name* with its `{n}` replaced by 1, 2, ..., or with `-1`, `-2`, ... at its end."""
    pattern = name if "{n}" in name else f"{name}-{{n}}"
    return [pattern.replace("{n}", str(n)) for n in range(1, count + 1)]


async def find_early_exit(places: Paths, session: SessionId) -> Session | None:
    """Return the session, just started, if it has already ended; None as soon as its program is known to run.

    A structured agent has already completed its handshake, so this does not wait.
    """
    before = await in_thread(begun, places, session)
    deadline = time.monotonic() + LIMIT_S
    resting_since: float | None = None
    while True:
        now, _ = await in_thread(advanced, places, before)
        if now.state is SessionState.ENDED:
            return now
        at = time.monotonic()
        resting_since = (resting_since or at) if await in_thread(_is_resting, now.pid) else None
        is_up = now.state in UP or (resting_since is not None and at - resting_since >= REST_S)
        if is_up or now.mode is not Mode.TMUX or at > deadline:
            return None
        await sleep(LOOK_S)


def _is_resting(pid: int | None) -> bool:
    """Whether a pane's program is waiting, and is no longer kasmon's launcher."""
    if HAS_PROC:
        found = fields(pid) if pid else None
        with contextlib.suppress(OSError):
            return (
                found is not None and found[0] in b"STI" and _LAUNCHER not in Path(f"/proc/{pid}/cmdline").read_bytes()
            )
        return False
    import psutil  # only where there is no /proc

    try:
        process = psutil.Process(pid) if pid else None
        return process is not None and process.status() in RESTING and launch.__file__ not in process.cmdline()
    except psutil.Error:
        return False


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


def _confirm_sandbox(where: Paths, resolved: ResolvedProfile, folder: str, *, agrees: bool) -> bool:
    """Print what the session's sandbox would get, if it has one; return whether the user agrees to its files."""
    if resolved.sandbox is None:
        return agrees
    from kasmon.supervisor.sandboxes import agent_policy, availability  # only where there is a sandbox

    workdir = str(expanded(folder or ".").absolute())
    availability.must_confine(where, resolved, workdir)
    for line in agent_policy.describe_sandbox(resolved, workdir):
        note(line)
    if agrees or agent_policy.is_agreed(where, resolved) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return agrees
    return accepts("Give the sandbox these files and credentials? This is asked once per profile.", sys.stderr)


def mode_of(said: str | None) -> Mode | None:
    """Return the mode that --mode names.

    Raises:
        UsageError: if there is none of that name.
    """
    if said in (None, Mode.TMUX, Mode.SDK):
        return Mode(said) if said else None
    raise UsageError(f"unknown mode {said!r}.", hint="Use tmux or sdk.")


def interrupt(
    *wanted: Sessions,
    run: Annotated[str, Arg("In a sandbox: interrupt only the run with this id.")] = "",
    state: InStates = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Interrupt the current turn."""
    act: Act = session_operations.interrupt
    if run:
        from kasmon.supervisor.sandboxes import use  # only where there is a sandbox

        act = partial(use.interrupt, run=run)
    selection = SessionSelection(names=wanted, states=state, plan=plan, everything=everything, yes=yes)
    return run_on_each(places(), selection, BUSY, act, "interrupted", wants_json=wants_json)


def fg(wanted: SessionArgument, /, *, wants_json: Json = False) -> None:
    """Continue an agent that Ctrl+Z suspended in its terminal."""
    _execute(wanted, session_operations.continue_stopped, "continued", wants_json=wants_json)


def stop(
    *wanted: Sessions,
    state: InStates = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Stop sessions' agents; the logs are kept, and the sessions can be restarted."""
    selection = SessionSelection(names=wanted, states=state, plan=plan, everything=everything, yes=yes)
    return run_on_each(places(), selection, ALIVE, session_operations.stop, "stopped", wants_json=wants_json)


def restart(
    *wanted: Sessions,
    state: InStates = None,
    plan: OfPlan = None,
    everything: Everything = False,
    skip_setup: Annotated[bool, Arg("Do not run the setup of the worktree that failed.")] = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Restart ended sessions."""

    async def act(where: Paths, session: Session) -> Outcome:
        await session_operations.restart(where, session, skips_setup=skip_setup)
        early = await find_early_exit(where, session.id)
        if early is None:
            return Outcome()
        end = _exit_error(early)
        return Outcome(
            fields=_exit_error_object(early), notice=str(end), code=0 if early.exit_code == 0 else end.exit_code
        )

    selection = SessionSelection(names=wanted, states=state, plan=plan, everything=everything, yes=yes)
    return run_on_each(places(), selection, NOT_ALIVE, act, "restarted", wants_json=wants_json)


def rename(wanted: SessionArgument, name: str, /, *, wants_json: Json = False) -> None:
    """Rename a session."""
    _execute(wanted, lambda where, session: list_entry.rename(where, session, name), "renamed", wants_json=wants_json)


def mark(wanted: SessionArgument, /, *, wants_json: Json = False) -> None:
    """Mark a session's finished turn as viewed; it is no longer listed first."""
    _execute(wanted, list_entry.mark_viewed, "viewed", wants_json=wants_json)


def rm(
    *wanted: Sessions,
    state: InStates = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Remove ended sessions."""

    async def act(where: Paths, session: Session) -> Outcome:
        kept = await list_entry.forget(where, session)
        return Outcome(fields={"kept": kept or None}, notice=list_entry.copy_stays(kept) if kept else "")

    selection = SessionSelection(names=wanted, states=state, plan=plan, everything=everything, yes=yes)
    return run_on_each(places(), selection, NOT_ALIVE, act, "removed", wants_json=wants_json)


def _execute(wanted: str, act: Act, done: str, *, wants_json: bool) -> None:
    """Call *act* on the session *wanted*, and print the text that it returns, else *done*.

    Raises:
        NotFoundError: if there is no such session.
        KasmonError: why it was not done.
    """
    where = places()
    session = find(read_fleet(where), wanted)
    outcome = event_loop.run(act(where, session))
    now = _current(where, session.id, session)
    if wants_json:
        print_json(answer(session=session_object(now)))
    else:
        say(f"{now.name} ({now.id}): {outcome if isinstance(outcome, str) else done}")


def _current(where: Paths, session: SessionId, otherwise: Session | None = None) -> Session:
    """Return the current state of the session; *otherwise* if it no longer exists."""
    now = read_fleet(where).get(session) or otherwise
    if now is None:
        raise SessionNotFoundError(session)
    return now


def attach(wanted: SessionArgument, /) -> NoReturn:
    """Attach to a session's terminal (Ctrl+] or F12 detaches)."""
    where = places()
    session = find(read_fleet(where), wanted)
    if session.mode is not Mode.TMUX:
        error = InteractiveOnlyError(session.name)
        error.hint = (
            f"`kasmon send {session.id}` sends a prompt; `kasmon move {session.id} --to tmux` moves it to a terminal."
        )
        raise error
    argv = event_loop.run(session_operations.attach_argv(where, session))
    if why := no_screen(os.environ):
        raise UsageError(f"cannot attach to {session.name!r}: {why}.", hint=f"In a terminal: {shlex.join(argv)}")
    if os.environ.get("TMUX"):
        note("this is a tmux inside your tmux; Ctrl+] or F12 detaches.")
    with contextlib.suppress(UnavailableError):  # a full disk must not prevent attaching
        event_loop.run(list_entry.mark_viewed(where, session))
    sys.stdout.flush()
    os.execvp(argv[0], argv)
