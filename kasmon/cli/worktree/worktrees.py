"""`kasmon worktrees`: list the worktrees of sessions and plans, and remove those in which nothing could be lost."""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.output.console import check_machine, note, note_other_machines, print_json, say, typed
from kasmon.cli.output.table import aligned
from kasmon.config import load
from kasmon.errors import KasmonError, NotFoundError, SessionNotFoundError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import age
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.repository.branch import BranchState
from kasmon.store.machines import ALL
from kasmon.supervisor.finish.pull_requests import read_branches
from kasmon.supervisor.fleet.lookup import check_here, check_named_alone, find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.worktree_removal import list_plan_worktrees, remove_plan_worktree
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.supervisor.worktrees.inventory import WorktreeEntry, list_session_worktrees, remove_session_worktree

HEADS: Final = ("SESSION", "BRANCH", "BASE", "WORK", "AGE", "SIZE", "STATE", "PATH")
NONE: Final = "No worktrees."


def worktrees(
    action: Annotated[Literal["ls", "gc"], Arg("ls: list them. gc: propose what can go, and remove it.")] = "ls",
    /,
    *wanted: Annotated[str, Arg("gc: sessions, plans or folders (default: all worktrees that can go).")],
    yes: Annotated[bool, Arg("gc: remove without asking.")] = False,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """List the worktrees of sessions and plans, or remove those in which nothing could be lost."""
    if action == "ls" and machine == ALL:
        from kasmon.cli.machines.tables import MachineTable, print_all  # only for several machines

        table = MachineTable(("worktrees",), "worktrees", _ListedWorktree, HEADS, _listed_row, NONE)
        return print_all(table, wants_json=wants_json)
    check_machine(machine)
    if action == "gc":
        return _collect(wanted, agrees=yes, wants_json=wants_json)
    return _list(machine, wants_json=wants_json)


def _list(machine: str, *, wants_json: bool) -> int:
    where = user_paths()
    fleet = read_fleet(where)
    entries = (*list_session_worktrees(where, fleet), *list_plan_worktrees(where, fleet))
    states = read_branches(where, (entry.tree for entry in entries))
    if wants_json:
        print_json(worktrees=[_object(entry, states.get(entry.tree.path)) for entry in entries])
        return 0
    rows = (_row(entry, states.get(entry.tree.path), fleet.at) for entry in entries)
    say(*(aligned([HEADS, *rows]) if entries else [NONE]))
    note_other_machines(where, machine, "worktrees")
    return 0


def _collect(wanted: Sequence[str], *, agrees: bool, wants_json: bool) -> int:
    where = user_paths()
    fleet = read_fleet(where)
    entries = (*list_session_worktrees(where, fleet), *list_plan_worktrees(where, fleet))
    chosen = [entry for entry in entries if not wanted or _names(entry) & set(wanted)]
    known = {name for entry in chosen for name in _names(entry)}
    if unknown := next((name for name in wanted if name not in known), ""):
        _check_here(fleet, unknown, wanted)
        raise NotFoundError(f"there is no worktree {unknown!r}.", hint="See `kasmon worktrees`.")
    can_go = [entry for entry in chosen if not entry.keeps]
    if not wants_json:
        for entry in chosen:
            state = f"stays: {entry.keeps} {entry.hint}".strip() if entry.keeps else "can go"
            say(f"{entry.tree.path} ({entry.name}, {_megabytes(entry.size_bytes)}): {state}")
    agreed = bool(can_go) and (agrees or _agrees(len(can_go), wants_json=wants_json))
    removed, errors = [], []
    for entry in can_go if agreed else []:
        config = in_folder(where, load(where), entry.tree.source).config.worktree
        try:
            if entry.plan:
                done = remove_plan_worktree(where, entry, read_fleet(where))
            else:
                done = remove_session_worktree(config, entry.tree, read_fleet(where), note)
        except KasmonError as error:
            errors.append(error)
            note(f"{entry.tree.path} stays: {error}")
        else:
            removed.append(entry.tree.path)
            if not wants_json:
                say(done)
    if wants_json:
        states = read_branches(where, (entry.tree for entry in chosen))
        print_json(removed=removed, worktrees=[_object(entry, states.get(entry.tree.path)) for entry in chosen])
    elif not can_go:
        say("Nothing can go.")
    elif not agreed:
        note("nothing was removed; --yes removes what can go.")
    refused = any(entry.keeps for entry in chosen) if wanted else False
    return max([error.exit_code for error in errors], default=4 if refused else 0)


def _check_here(fleet: Fleet, name: str, wanted: Sequence[str]) -> None:
    """Raise unless *name*, one of *wanted*, is no session of another machine.

    Raises:
        OtherMachineError: if it is the only one.
        UsageError: if it is one of several.
    """
    with contextlib.suppress(SessionNotFoundError):
        session = find(fleet, name)
        check_named_alone(session, wanted)
        check_here(session)


def _names(entry: WorktreeEntry) -> frozenset[str]:
    return frozenset({entry.session, entry.name, entry.plan, entry.tree.path} - {""})


def _agrees(count: int, *, wants_json: bool) -> bool:
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typed(f"Type yes to remove {'this worktree' if count == 1 else f'these {count} worktrees'}") == "yes"


def _row(entry: WorktreeEntry, branch: BranchState | None, now: float) -> tuple[str, ...]:
    tree = entry.tree
    base = tree.base[:8] if tree.base.startswith(tree.base_name) else f"{tree.base_name} {tree.base[:8]}"
    state = f"stays: {entry.keeps.rstrip('.')}" if entry.keeps else "can go"
    since = age(now - entry.created_at)
    work = branch.words if branch else "unknown"
    return (
        entry.name,
        branch.name if branch else tree.branch,
        base,
        work,
        since,
        _megabytes(entry.size_bytes),
        state,
        tree.path,
    )


class _ListedWorktree(msgspec.Struct, frozen=True):
    """One of those that `kasmon worktrees --json` prints, as far as a row shows it."""

    name: str
    created_at: float
    size_bytes: int
    worktree: SessionWorktree
    why: str | None = None
    branch: BranchState | None = None


def _listed_row(listed: _ListedWorktree) -> tuple[str, ...]:
    entry = WorktreeEntry(
        session=SessionId(""),
        name=listed.name,
        tree=listed.worktree,
        created_at=listed.created_at,
        size_bytes=listed.size_bytes,
        keeps=listed.why or "",
    )
    return _row(entry, listed.branch, time.time())


def _object(entry: WorktreeEntry, branch: BranchState | None) -> dict[str, object]:
    return {
        "session": entry.session or None,
        "plan": entry.plan or None,
        "name": entry.name,
        "created_at": entry.created_at,
        "size_bytes": entry.size_bytes,
        "can_go": not entry.keeps,
        "why": entry.keeps or None,
        "worktree": msgspec.to_builtins(entry.tree),
        "branch": msgspec.to_builtins(branch),
    }


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
