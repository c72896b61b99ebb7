"""`kasmon ls` and `kasmon wait`: print sessions once. Status bars call `ls`, so it loads little and starts nothing."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from kasmon.charset import needs_ascii
from kasmon.cli.arguments import NAMED, Arg, Json, States, Timeout
from kasmon.cli.output.console import LOCAL, as_json, note, print_json, say
from kasmon.cli.output.json_objects import answer, session_object
from kasmon.cli.output.table import cut, fallbacks, summary, table
from kasmon.errors import UsageError
from kasmon.model.fleet import Fleet, by_attention
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState, states_of
from kasmon.paths import Paths, user_paths
from kasmon.store.machines import ALL, machine_names, read_machine
from kasmon.supervisor.fleet.goal import find_matching
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.names import check_tags

if TYPE_CHECKING:
    from kasmon.model.permission import SessionId
    from kasmon.repository.branch import BranchState

NOTHING_YET = "No sessions yet. Start one with `kasmon new NAME`, or try `kasmon demo`."


def ls(
    *,
    watch: Annotated[bool, Arg("Keep running and print changes.")] = False,
    state: States = None,
    wave: Annotated[int | None, Arg("Only sessions of the wave with this number.")] = None,
    tag: Annotated[
        str | None, Arg("Only sessions with one of these tags, separated by commas.", completer="tags")
    ] = None,
    machine: Annotated[
        str, Arg("Only sessions of this registered machine; local: of this one; all: of each.", completer="machines")
    ] = "",
    marks: Annotated[bool, Arg("With --json: also pull requests, and files that other sessions change too.")] = False,
    tmux: Annotated[bool, Arg("List the panes of your own tmux that `kasmon adopt` can use.")] = False,
    background: Annotated[
        bool, Arg("List the background sessions of Claude Code that `kasmon adopt --background` can show.")
    ] = False,
    socket: Annotated[str, Arg("With --tmux: socket of your tmux server.")] = "",
    wants_json: Json = False,
) -> int:
    """List sessions (most urgent first)."""
    if tmux:
        from kasmon.cli.sessions import ls_tmux

        ls_tmux(socket, wants_json=wants_json)
        return 0
    if background:
        from kasmon.cli.sessions import ls_background

        ls_background(wants_json=wants_json)
        return 0
    if watch:
        from kasmon.cli.watch import watch as follow

        follow(state, wave, machine, tag, wants_json=wants_json)
        return 0
    wanted = states_in(state)
    fleet = read_fleet(user_paths())
    sessions = chosen(fleet, wanted, wave, machine, tags=tag)
    if wants_json:
        branches = branches_of(sessions)
        objects = [session_object(each, branches.get(each.id)) for each in sessions]
        if marks:
            from msgspec import to_builtins

            from kasmon.config import load  # it reads every worktree
            from kasmon.supervisor.machines.marks import SessionMarks, read_own_marks

            found = read_own_marks(user_paths(), load(user_paths()), fleet.sessions, branches)
            objects = [each | to_builtins(found.get(each["id"], SessionMarks(id=each["id"]))) for each in objects]
        print(as_json(answer(sessions=objects)))
        return note_unreachable() if machine == ALL else 0
    if marks:
        raise UsageError("--marks requires --json.", hint="The dashboard shows the marks in its list.")
    for line in drawn(fleet, sessions):
        say(line)
    if fleet.read_only:
        note(f"events cannot be written at the moment: {fleet.read_only}.")
    return note_unreachable() if machine == ALL else 0


def note_unreachable() -> int:
    """Print which machines are unreachable, and why; return the exit code for that, 0 if none is."""
    from kasmon.errors import RemoteUnreachableError
    from kasmon.supervisor.machines.registration import status  # it loads what starts links

    code, where = 0, user_paths()
    for name in machine_names(where):
        if why := status(where, name).why_unreachable:
            code = RemoteUnreachableError.exit_code
            note(f"{name} is unreachable, so its sessions are shown as they were: {why}.")
    return code


def wait(
    *sessions: Annotated[str, Arg(NAMED, completer="sessions")],
    for_: Annotated[str, Arg("States, separated by commas.", ("--for",))],
    timeout: Timeout = None,
    any_: Annotated[bool, Arg("Return as soon as one session is in such a state.", ("--any",))] = False,
    wants_json: Json = False,
) -> None:
    """Wait until sessions are in one of these states."""
    if not sessions:
        raise UsageError("`kasmon wait` requires a session.", hint="See `kasmon wait --help`.")
    goal, where = states_in(for_), user_paths()
    fleet = read_fleet(where)
    ids = [find(fleet, name).id for name in sessions]
    matches = find_matching(fleet, ids, goal, any_)
    if not matches:
        import asyncio  # only where they are not yet in these states

        from kasmon.supervisor.fleet.wait import wait_for

        matches = asyncio.run(wait_for(where, ids, goal, any=any_, timeout_s=timeout))
    if wants_json:
        print_json(sessions=[session_object(session) for session in matches])
    else:
        say(*(f"{session.label} is {session.state}" for session in matches))


def branches_of(sessions: Sequence[Session]) -> "dict[SessionId, BranchState]":
    """Return the states of the worktrees that *sessions* work in; it loads little if there are none."""
    from kasmon.supervisor.worktrees.recognized_worktree import worktree_of

    trees = {session.id: tree for session in sessions if (tree := worktree_of(session)) is not None}
    if not trees:
        return {}
    from kasmon.supervisor.finish.pull_requests import read_branches

    states = read_branches(user_paths(), trees.values())
    return {session: states[tree.path] for session, tree in trees.items() if tree.path in states}


def ls_object(where: Paths) -> str:
    """Return what `kasmon ls --json` prints for the kasmon at *where*."""
    sessions = by_attention(read_fleet(where).sessions)
    return as_json(answer(sessions=[session_object(session) for session in sessions]))


def states_in(text: str | None) -> frozenset[SessionState]:
    """Return the states in a comma-separated list; all of them for None.

    Raises:
        UsageError: if one of them is no state, or there is none.
    """
    return states_of(tuple(SessionState) if text is None else [word.strip() for word in text.split(",")])


def chosen(
    fleet: Fleet, states: frozenset[SessionState], wave: int | None, machine: str = "", *, tags: str | None = None
) -> tuple[Session, ...]:
    """Return the sessions of *fleet* in *states*, in *wave* (None: any) and on *machine* (empty: any).

    Those that need a person come first.

    Args:
        tags: they have one of these tags, separated by commas; None: any.

    Raises:
        UsageError: if one of *tags* is no tag.
        NotFoundError: if no such machine is registered.
    """
    if machine not in ("", LOCAL, ALL):
        read_machine(user_paths(), machine)
    wanted = None if tags is None else check_tags(tags.split(","))
    return by_attention(
        session
        for session in fleet.sessions
        if session.state in states
        and wave in (None, session.wave)
        and machine in ("", ALL, session.via or LOCAL)
        and (wanted is None or not set(wanted).isdisjoint(session.tags))
    )


def drawn(fleet: Fleet, sessions: Sequence[Session]) -> list[str]:
    """Return *sessions* of *fleet* as lines for the terminal or file at stdout."""
    if not fleet.sessions:
        return [NOTHING_YET]
    utf8 = is_utf8()
    width = columns()
    notes = [cut(line, width, utf8=utf8) if width else line for line in fallbacks(sessions)]
    return [*table(sessions, fleet.at, width=width, utf8=utf8), *notes, summary(fleet, utf8=utf8)]


def columns() -> int:
    """Return the width of the terminal at stdout in cells; 0 if it is none, and nothing has to be cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 0


def is_utf8() -> bool:
    """Whether stdout and the locale accept every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" and not needs_ascii()
