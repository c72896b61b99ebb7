"""Commands for sessions: `new`, `adopt`, `attach`, `move`, `interrupt`, `stop`, `hibernate`, `restart`, `rm`, ..."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec

from kasmon import launch, system
from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.dashboard import no_screen
from kasmon.cli.output.console import accepts, note, print_json, say
from kasmon.cli.output.json_objects import error_object, session_object
from kasmon.cli.output.table import aligned
from kasmon.cli.session_selection import (
    Act,
    Everything,
    InStates,
    OfPlan,
    Outcome,
    Sessions,
    SessionSelection,
    WithTags,
    Yes,
    names_from_stdin,
    run_on_each,
    run_side_by_side,
)
from kasmon.config import Config, load, resolve
from kasmon.config.profile import ResolvedProfile, parse_mode, programs
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    PermissionModeError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from kasmon.host.rpc import event_loop
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.commands import Mode
from kasmon.model.evidence import AT_ONCE
from kasmon.model.fleet import Fleet, find_children
from kasmon.model.formatting import duration
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths, expanded, user_paths
from kasmon.sanitize import clean_line
from kasmon.store.session_reader import apply_log, load_initial_session
from kasmon.supervisor.fleet.lookup import find, find_here
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.limits.account import find_account
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.folder_config import for_session

NOTICED: Final = (
    "Your tmux shows one more client in `list-clients`: kasmon's control client. Sizes, names, "
    "options and environment are unchanged; `kasmon rm` releases the pane."
)
"""The note to the user on an adoption."""
BUSY: Final = ALIVE - {SessionState.IDLE, SessionState.PAUSED, SessionState.STANDBY}
NOT_ALIVE: Final = frozenset(SessionState) - ALIVE
IDLE: Final = frozenset({SessionState.IDLE})
KEPT_RUNNING: Final = (
    "Claude Code's own service runs this session. `kasmon stop` closes only its screen here; "
    "`claude stop ID` ends the session itself."
)
"""The note to the user on the adoption of a background session."""
BACKGROUND_HEADS: Final = ("ID", "NAME", "STATE", "FOLDER", "WATCHED AS")
HEADS: Final = ("PANE", "TARGET", "AGENT", "RUNS", "SIZE", "WATCHED AS", "TITLE")

LIMIT_S: Final = 1.0
"""A program that is busy for this long counts as running, in seconds."""
REST_S: Final = 0.05
"""A program that waits for this long counts as running, in seconds."""
LOOK_S: Final = 0.01
UP: Final = frozenset({SessionState.IDLE, SessionState.ASKING, SessionState.LIMITED})


def ls_tmux(socket: str, *, wants_json: bool) -> None:
    """Print the panes of the user's own tmux. Raises `NotFoundError` or `TmuxError` if there is none."""
    import asyncio

    from kasmon.supervisor.sessions.adoption.panes import foreign_panes

    panes = asyncio.run(foreign_panes(user_paths(), socket))
    if wants_json:
        print_json(panes=[msgspec.to_builtins(pane) | {"target": pane.target} for pane in panes])
    else:
        say(*aligned([HEADS, *(_row(pane) for pane in panes)]))


def ls_background(*, wants_json: bool) -> None:
    """Print the background sessions of Claude Code. Raises `UnavailableError` if it does not list them."""
    from kasmon.supervisor.sessions.adoption.background import list_sessions

    where = user_paths()
    found = event_loop.run(list_sessions(where, load(where)))
    if wants_json:
        print_json(background=[msgspec.to_builtins(each) for each in found])
        return
    cells = [(each.id, each.name, each.activity, each.workdir, each.adopted) for each in found]
    rows = [tuple(cell or "-" for cell in row) for row in cells]
    say(*aligned([BACKGROUND_HEADS, *(tuple(clean_line(cell) for cell in row) for row in rows)]))


def adopt(
    target: Annotated[
        str,
        Arg(
            "SESSION, SESSION:WINDOW, SESSION:WINDOW.PANE or %PANE in your own tmux;"
            " with --background the ID or the name of a background session."
        ),
    ],
    /,
    *,
    background: Annotated[
        bool, Arg("Show a background session of Claude Code (`kasmon ls --background` lists them) in a terminal.")
    ] = False,
    name: Annotated[
        str, Arg("Session name (default: the name of the tmux session, or of the background session).")
    ] = "",
    socket: Annotated[str, Arg("Socket of your tmux server (default: the current one, or tmux's default).")] = "",
    wants_json: Json = False,
) -> None:
    """Adopt a pane of your own tmux (`kasmon ls --tmux` lists them); kasmon never resizes, renames or ends it."""
    import asyncio

    if background:
        return _adopt_background(target, name, wants_json=wants_json)
    from kasmon.supervisor.sessions.adoption.panes import adopt as adopted

    where = user_paths()
    launch = asyncio.run(adopted(where, target, name, socket))
    session = read_session(where, launch.session)
    if wants_json:
        print_json(session=session_object(session), noticed=NOTICED)
        return None
    note(NOTICED)
    say(launch.session)
    return None


def _adopt_background(target: str, name: str, *, wants_json: bool) -> None:
    from kasmon.supervisor.sessions.adoption.background import adopt_background

    where = user_paths()
    session, _ = event_loop.run(adopt_background(where, load(where), target, name))
    if wants_json:
        print_json(session=session_object(read_session(where, session)), noticed=KEPT_RUNNING)
        return
    note(KEPT_RUNNING)
    say(session)


def _row(pane: AdoptablePane) -> tuple[str, ...]:
    size = f"{pane.width}x{pane.height}"
    return (pane.pane, clean_line(pane.target), pane.agent or "-", pane.command, size, pane.adopted or "-", pane.title)


def move(
    wanted: SessionArgument,
    /,
    *,
    to: Annotated[Literal["tmux", "sdk"] | None, Arg("Mode to move to (default: its own).")] = None,
    account: Annotated[str | None, Arg("Account of the config to move to; '' is the agent's own log-in.")] = None,
    change_permissions: Annotated[bool, Arg("Move even if the permission mode cannot be carried over.")] = False,
    wants_json: Json = False,
) -> None:
    """Move a conversation between terminal and structured mode, or to another account."""
    import asyncio

    if to is None and account is None:
        raise UsageError("it is missing where to move the session.", hint="Pass --to or --account.")

    from kasmon.supervisor.sessions.move import move as moved  # it inspects processes

    where = user_paths()
    session = find_here(read_fleet(where), wanted)
    settings = for_session(where, load(where), session.config_folder, session.agent)
    if settings.notice:
        note(settings.notice)
    mode = session.mode if to is None else Mode(to)
    try:
        asyncio.run(moved(where, settings.config, session, mode, account, changes_permissions=change_permissions))
    except PermissionModeError as error:
        if wants_json or not _is_agreed(error):
            raise
        asyncio.run(moved(where, settings.config, session, mode, account, changes_permissions=True))
    now = find(read_fleet(where), session.id)
    if wants_json:
        print_json(session=session_object(now))
    else:
        place = f"account {now.account!r}" if now.account else "its agent's own log-in"
        say(f"{now.id}: moved to {place if account is not None else now.mode}")


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
            "Profile: claude, codex, shell, scripted, another that `kasmon agents ls` lists, or one from your config.",
            completer="agents",
        ),
    ] = "",
    mode: Annotated[str | None, Arg("tmux or sdk (default: the profile's, else tmux).")] = None,
    account: Annotated[str, Arg("Account of the config that it uses (default: the agent's own log-in).")] = "",
    sandbox: Annotated[
        str | None,
        Arg(
            "Sandbox tier: `jail`, `microvm` or `e2b` (`kasmon doctor` lists which are available,"
            " and how to get the others); '' means none (default: the profile's)."
        ),
    ] = None,
    tools: Annotated[
        list[Literal["fleet"]] | None, Arg("What its agent may use of `kasmon mcp --tools`; may be repeated.")
    ] = None,
    yes: Annotated[bool, Arg("Agree that the sandbox gets the profile's files and credentials.")] = False,
    folder: Annotated[str, Arg("Working directory (default: the current folder).", ("--dir",))] = "",
    worktree: Annotated[bool, Arg("Work in a new git worktree, on a branch of its own.")] = False,
    base: Annotated[str, Arg("What the worktree begins at: a branch, a tag, a commit, `pr:NUMBER`.")] = "",
    branch: Annotated[str, Arg("Branch of the worktree (default: `worktree.branch` of the config).")] = "",
    reuse_branch: Annotated[bool, Arg("Work on --branch although it exists.")] = False,
    in_folder: Annotated[bool, Arg("Work in the folder itself, whatever the config says.", ("--no-worktree",))] = False,
    prompt: Annotated[str, Arg("First prompt (`-`: from stdin).", hyphen=True)] = "",
    resume: Annotated[
        str, Arg("Resume this stored conversation: an id that `kasmon agents conversations AGENT` lists.")
    ] = "",
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
    template: Annotated[
        str, Arg("Template of the config: what is omitted here is taken from it.", completer="templates")
    ] = "",
    field: Annotated[list[str] | None, Arg("NAME=TEXT: a field in the template's prompt; may be repeated.")] = None,
    tag: Annotated[list[str] | None, Arg("Tag of the session; may be repeated.", completer="tags")] = None,
    count: Annotated[
        int | None,
        Arg("Start this many sessions; `{n}` in NAME is the number of each (default: `-{n}` at its end).", at_least=1),
    ] = None,
    actor: Annotated[str, Arg("The agent that another machine's kasmon starts it for, as JSON.", is_shown=False)] = "",
    on: Annotated[
        str,
        Arg("Start it on this registered machine, by the config and the folders there.", completer="machines"),
    ] = "",
    wants_json: Json = False,
) -> int:
    """Start a session and print its id; exit code 1 if its program exits immediately with an error."""
    is_one = count is None and name != "-"
    if name == "-" and (prompt == "-" or count is not None):
        raise UsageError("names from stdin cannot be combined with --count or --prompt -.", hint="Give one of them.")
    if resume and not is_one:
        raise UsageError("--resume opens one conversation in one session.", hint="Give one name.")
    if template and argv:
        raise UsageError("--template cannot be combined with a program after --.", hint="Give one of them.")
    if field and not template:
        raise UsageError("--field requires --template.", hint="The template's prompt has the fields.")
    names = names_from_stdin() if name == "-" else [name] if count is None else numbered(name, count)
    where = user_paths()
    config, chosen = load(where), None
    if template:
        from kasmon.supervisor.sessions.folder_config import in_folder as in_folder_config
        from kasmon.supervisor.sessions.template import find_template, parse_fields, with_prompt, with_template

        chosen = find_template(in_folder_config(where, config, folder), template)
        on = on or chosen.machine
    parent = None if beside is None else _find_parent(where, beside, on)
    from kasmon.supervisor.sessions.create import NewSession  # the other commands here create none

    wanted = NewSession(
        name=name,
        agent=agent,
        mode=parse_mode(mode),
        argv=argv,
        workdir=folder,
        worktree=False if in_folder else worktree or None,
        base=base,
        branch=branch,
        reuses_branch=reuse_branch,
        tools=tuple(tools or ()),
        agrees=yes,
        parent=None if parent is None else parent.id,
        prompt=sys.stdin.read() if prompt == "-" else prompt,
        resume=resume,
        environment=tuple(env or ()),
        public_environment=tuple(env_public or ()),
        task=task,
        wave=wave,
        peers=peers,
        tags=tuple(tag or ()),
        account=account,
        sandbox=sandbox,
    )
    if actor:
        from kasmon.supervisor.machines.agent_requests import parse_actor  # only for other machines

        declared = parse_actor(actor)
        wanted = msgspec.structs.replace(wanted, actor=declared.actor, limits=declared.limits)
    if chosen is not None:
        wanted = with_template(wanted, chosen)
    settings = for_session(where, config, "" if on else folder, wanted.agent)
    if settings.notice and not on:
        note(settings.notice)
    if chosen is not None:
        text = "" if wanted.prompt else chosen.prompt
        filled = with_prompt(settings.config, wanted, text, parse_fields(field or ()))
        wanted = filled if text else wanted
    if not on:
        if wanted.account and not (wanted.agent or argv):
            wanted = msgspec.structs.replace(wanted, agent=find_account(settings.config, wanted.account).agent)
        resolved = resolve(settings.config, wanted.agent, wanted.mode, argv, sandbox=wanted.sandbox)
        wanted = msgspec.structs.replace(wanted, agrees=_confirm_sandbox(where, resolved, folder, agrees=yes))

    async def start(name: str) -> tuple[SessionId, Session | None]:
        named = msgspec.structs.replace(wanted, name=name)
        if on:
            from kasmon.supervisor.machines.delegation import start_there  # only for other machines

            return await start_there(where, on, named), None
        session = await session_operations.create(where, settings.config, named)
        return session, await find_early_exit(where, session)

    outcomes = run_side_by_side(names, start)
    if is_one and isinstance(outcomes[0], KasmonError):
        raise outcomes[0]
    results, code = _report_started(read_fleet(where), outcomes, settings.config, wants_json=wants_json)
    if wants_json:
        print_json(**(results[0] if is_one else {"results": results}))
    return code


def _report_started(
    fleet: Fleet,
    outcomes: Sequence[tuple[SessionId, Session | None] | KasmonError],
    config: Config,
    *,
    wants_json: bool,
) -> tuple[list[dict[str, Any]], int]:
    """Print what came of each new session; return the JSON object of each, and the exit code."""
    from kasmon.supervisor.worktrees.shared_checkout import describe_sharers, list_sharers  # only for new sessions

    results: list[dict[str, Any]] = []
    code = 0
    for outcome in outcomes:
        if isinstance(outcome, KasmonError):
            note(str(outcome))
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
        if sharers := list_sharers(started, fleet.sessions, programs(config)):
            note(f"{started.name!r}: {describe_sharers(sharers)}; give it its own by --worktree.")
        code = max(code, _report_exit(early))
    return results, code


def _find_parent(where: Paths, beside: str, machine: str) -> Session:
    session = find(read_fleet(where), beside)
    if session.via == machine:
        return session
    hint = "Start it there: --on names its machine, and is left out for this one."
    raise UsageError(f"--in {beside!r} is a session of {session.via or 'this machine'}.", hint=hint)


def numbered(name: str, count: int) -> list[str]:
    """Return *count* names: *name* with its `{n}` replaced by 1, 2, ..., or with `-1`, `-2`, ... at its end."""
    pattern = name if "{n}" in name else f"{name}-{{n}}"
    return [pattern.replace("{n}", str(n)) for n in range(1, count + 1)]


async def find_early_exit(paths: Paths, session: SessionId) -> Session | None:
    """Return the session, just started, if it has already ended; None as soon as its program is known to run.

    A structured agent has already completed its handshake, so this does not wait.
    """
    before = await run_in_thread(load_initial_session, paths, session)
    deadline = time.monotonic() + LIMIT_S
    resting_since: float | None = None
    while True:
        now, _ = await run_in_thread(apply_log, paths, before)
        if now.state is SessionState.ENDED:
            return now
        at = time.monotonic()
        resting_since = (resting_since or at) if await run_in_thread(_is_resting, now.pid) else None
        is_up = now.state in UP or (resting_since is not None and at - resting_since >= REST_S)
        if is_up or now.mode is not Mode.TMUX or at > deadline:
            return None
        await sleep(LOOK_S)


def _is_resting(pid: int | None) -> bool:
    """Whether a pane's program is waiting, and is no longer kasmon's launcher."""
    if pid is None or not system.HERE.is_waiting(pid):
        return False
    return launch.__file__ not in system.HERE.read_arguments(pid)


def _exit_error_object(early: Session | None) -> dict[str, Any]:
    return error_object(_exit_error(early)) if early is not None and early.exit_code != 0 else {}


def _exit_error(session: Session) -> LaunchError:
    """Return the error for *session*, which ended immediately: with its exit status and its output."""
    reason = (session.end_why or session.last_line).removeprefix(AT_ONCE).lstrip(": ")
    how = session.signal or (f"exit code {session.exit_code}" if session.exit_code is not None else "no exit code")
    return LaunchError(
        f"session {session.name!r} exited immediately with {how}"
        + (f": {reason}." if reason else " and printed nothing."),
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


def interrupt(
    *wanted: Sessions,
    run: Annotated[str, Arg("In a sandbox: interrupt only the run with this id.")] = "",
    state: InStates = None,
    with_tags: WithTags = None,
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
    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    return run_on_each(user_paths(), selection, BUSY, act, "interrupted", wants_json=wants_json)


def fg(wanted: SessionArgument, /, *, wants_json: Json = False) -> None:
    """Continue an agent that Ctrl+Z suspended in its terminal."""
    _execute(wanted, session_operations.continue_stopped, "continued", wants_json=wants_json)


def stop(
    *wanted: Sessions,
    children: Annotated[
        Literal["stop", "keep"] | None,
        Arg("What happens to sessions that their agents started (default: ask, if some run)."),
    ] = None,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Stop sessions' agents; the logs are kept, and the sessions can be restarted."""
    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    where, choice = user_paths(), children
    if choice is None and wanted != ("-",):
        fleet = read_fleet(where)
        selected = [each.id for each in selection.find(fleet, ALIVE)[0]]
        choice = _choose_children(fleet, selected)

    async def act(where: Paths, session: Session) -> Outcome:
        if choice is None and _running_children(await run_in_thread(read_fleet, where), [session.id]):
            raise UNCHOSEN
        await session_operations.stop(where, session)
        stopped = await session_operations.stop_children(where, session) if choice == "stop" else ()
        names = ", ".join(clean_line(each.name) for each in stopped)
        text = f"stopped, with its children {names}" if stopped else ""
        return Outcome(fields={"children": [each.id for each in stopped]}, text=text)

    return run_on_each(where, selection, ALIVE, act, "stopped", wants_json=wants_json)


UNCHOSEN: Final = RefusedError(
    "nothing was stopped: sessions that its agent started still run.",
    hint="Pass --children stop or --children keep. `kasmon ls` shows them below it.",
)


def _running_children(fleet: Fleet, selected: Sequence[SessionId]) -> list[Session]:
    """Return the running children of the *selected* sessions, without these."""
    found = {each.id: each for one in selected for each in find_children(fleet, one)}
    return [each for each in found.values() if each.state in ALIVE and each.id not in selected]


def _choose_children(fleet: Fleet, selected: Sequence[SessionId]) -> Literal["stop", "keep"]:
    """Return what happens to the running children of the *selected* sessions: the user at this terminal says it.

    Raises:
        RefusedError: if there are some, and no terminal to ask on.
    """
    running = _running_children(fleet, selected)
    if not running:
        return "keep"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UNCHOSEN
    note(f"their agents started {', '.join(clean_line(each.name) for each in running)}.")
    return "stop" if accepts("Stop these too?", sys.stderr) else "keep"


def hibernate(
    *wanted: Sessions,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """End idle agents to free their memory; the next prompt or restart resumes their conversations.

    Refuses where a turn runs, a prompt, draft or request waits, something that the agent started still runs, or the
    conversation is not proven to be stored. Sandboxes are paused.
    """
    from kasmon.supervisor.hibernation import hibernate as hibernation  # it loads psutil

    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    return run_on_each(user_paths(), selection, IDLE, hibernation.hibernate, "hibernated", wants_json=wants_json)


def restart(
    *wanted: Sessions,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    skip_setup: Annotated[bool, Arg("Do not run the setup of the worktree that failed.")] = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Restart ended sessions, and resume hibernated ones."""

    async def act(where: Paths, session: Session) -> Outcome:
        began = time.monotonic()
        await session_operations.restart(where, session, skips_setup=skip_setup)
        took_s = time.monotonic() - began
        early = await find_early_exit(where, session.id)
        if early is None and session.state is SessionState.HIBERNATED:
            return Outcome(fields={"resumed_s": round(took_s, 3)}, text=f"resumed in {duration(took_s)}")
        if early is None:
            return Outcome()
        end = _exit_error(early)
        return Outcome(
            fields=_exit_error_object(early), notice=str(end), code=0 if early.exit_code == 0 else end.exit_code
        )

    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    return run_on_each(user_paths(), selection, NOT_ALIVE, act, "restarted", wants_json=wants_json)


def rename(
    wanted: SessionArgument, name: Annotated[str, Arg("New name of the session.")], /, *, wants_json: Json = False
) -> None:
    """Rename a session."""
    _execute(wanted, lambda where, session: list_entry.rename(where, session, name), "renamed", wants_json=wants_json)


def tag(
    *wanted: Sessions,
    add: Annotated[list[str] | None, Arg("Tag to add; may be repeated.", completer="tags")] = None,
    remove: Annotated[list[str] | None, Arg("Tag to remove; may be repeated.", completer="tags")] = None,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Tag sessions, or remove tags."""
    if not add and not remove:
        raise UsageError("it is missing which tags to change.", hint="Pass --add TAG or --remove TAG.")

    async def act(where: Paths, session: Session) -> str:
        return await list_entry.tag(where, session, add or (), remove or ())

    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    return run_on_each(user_paths(), selection, frozenset(SessionState), act, "tagged", wants_json=wants_json)


def mark(wanted: SessionArgument, /, *, wants_json: Json = False) -> None:
    """Mark a session's finished turn as viewed; it is no longer listed first."""
    _execute(wanted, list_entry.mark_viewed, "viewed", wants_json=wants_json)


def rm(
    *wanted: Sessions,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    conversation: Annotated[
        bool, Arg("Have the agent also delete its own conversation, where it can (ACP); else nothing is removed.")
    ] = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Remove ended sessions."""

    async def act(where: Paths, session: Session) -> Outcome:
        kept = await list_entry.forget(where, session, deletes_conversation=conversation)
        return Outcome(fields={"kept": kept or None}, notice=list_entry.copy_stays(kept) if kept else "")

    selection = SessionSelection(names=wanted, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes)
    removable = NOT_ALIVE - {SessionState.HIBERNATED} if everything else NOT_ALIVE
    return run_on_each(user_paths(), selection, removable, act, "removed", wants_json=wants_json)


def _execute(wanted: str, act: Act, done: str, *, wants_json: bool) -> None:
    """Call *act* on the session *wanted*, and print the text that it returns, else *done*."""
    where = user_paths()
    session = find(read_fleet(where), wanted)
    outcome = event_loop.run(act(where, session))
    now = read_fleet(where).get(session.id) or session
    if wants_json:
        print_json(session=session_object(now))
    else:
        say(f"{now.label} ({now.id}): {outcome if isinstance(outcome, str) else done}")


def attach(wanted: SessionArgument, /) -> NoReturn:
    """Attach to a session's terminal (Ctrl+] or F12 detaches); for structured Codex, its own screen (/quit ends it)."""
    where = user_paths()
    session = find(read_fleet(where), wanted)
    argv: list[str]
    variables: Mapping[str, str] = os.environ
    try:
        if session.mode is Mode.SDK and not session.via:
            import asyncio  # rarely needed, as these

            from kasmon.host.rpc.peer import must_be_a_person
            from kasmon.supervisor.sessions.own_screen import find_own_screen

            asyncio.run(must_be_a_person(os.getpid(), None, action="open the screen of an agent"))
            screen = find_own_screen(where, session)
            argv, variables = [*screen.argv], screen.variables
            os.chdir(screen.workdir)
        else:
            argv = event_loop.run(session_operations.attach_argv(where, session))
    except InteractiveOnlyError as error:
        error.hint = (
            f"`kasmon send {session.id}` sends a prompt; `kasmon move {session.id} --to tmux` moves it to a terminal."
        )
        raise
    if why := no_screen(os.environ):
        raise UsageError(f"cannot attach to {session.name!r}: {why}.", hint=f"In a terminal: {shlex.join(argv)}")
    if os.environ.get("TMUX") and session.mode is Mode.TMUX:
        note("this is a tmux inside your tmux; Ctrl+] or F12 detaches.")
    with contextlib.suppress(UnavailableError):  # a full disk must not prevent attaching
        event_loop.run(list_entry.mark_viewed(where, session))
    sys.stdout.flush()
    os.execvpe(argv[0], argv, variables)
