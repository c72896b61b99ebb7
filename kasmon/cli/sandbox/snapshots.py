"""Commands about sandboxes and their memory snapshots: `sandbox ls`, `show`, `pause` and `fork`."""

import asyncio
import contextlib
import time
from typing import Annotated, Any

import msgspec

from kasmon.cli.arguments import Arg, Json, SandboxArgument
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.sandbox.report import about, row, sandbox_object, snapshot_words
from kasmon.cli.session_selection import (
    Everything,
    InStates,
    OfPlan,
    Outcome,
    Sandboxes,
    SessionSelection,
    WithTags,
    Yes,
    run_on_each,
)
from kasmon.errors import KasmonError, UsageError
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import REMEMBERING, SandboxPhase
from kasmon.model.sandbox.snapshot import describe_origin
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.sandbox_adoption import end_unfinished, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.sandboxes import sandbox_operations
from kasmon.supervisor.sandboxes.history import SnapshotReader, StoredSnapshots, read_history, read_policy


def list_all(*, wants_json: Json = False) -> None:
    """List sandboxes with their phase, usage and memory snapshot."""
    where = user_paths()
    for unfinished_one in find_unfinished(where, sandboxed(where)):
        with contextlib.suppress(KasmonError):  # `kasmon doctor` reports it
            end_unfinished(where, unfinished_one)
    memory, now = SnapshotReader(where), time.time()
    sessions = [(session, memory.of(session)) for session in sandboxed(where)]
    if wants_json:
        print_json(sandboxes=[sandbox_object(session, remembered) for session, remembered in sessions])
        return
    for session, remembered in sessions:
        say(row(session, remembered, now))


def show(name: SandboxArgument, /, *, wants_json: Json = False) -> None:
    """Show a sandbox: phase, memory snapshot (size, age, validity), checkpoints, lost state and fork origin."""
    where = user_paths()
    session = find_here(read_fleet(where), name)
    remembered = SnapshotReader(where).of(session, whole=True)
    points = session.sandbox_state.checkpoints if session.sandbox_state else ()
    if wants_json:
        kept = [msgspec.to_builtins(point) for point in points]
        print_json(session=sandbox_object(session, remembered) | {"checkpoints_kept": kept} | _stored(where, session))
        return
    for line in about(session, remembered, points, time.time()):
        say(line)
    policy = read_policy(where, session)
    if policy is not None and policy.hosts:
        say(f"It may reach {', '.join(policy.hosts)}.")
        if policy.refuse:
            say(f"Refused without a request: {', '.join(policy.refuse)}.")


def _stored(where: Paths, session: Session) -> dict[str, Any]:
    """Return what its files say beyond its log: what it may use, its checkpoints, the hosts that it could not reach."""
    history = read_history(where, session)
    stored = {
        "stored_checkpoints": [msgspec.to_builtins(each) for each in history.checkpoints],
        "blocked": [each._asdict() for each in history.refused],
    }
    if (policy := history.policy) is None:
        return stored
    may = {"network": list(policy.hosts), "refuse": list(policy.refuse), "size": policy.size}
    return stored | may | {"project": policy.project, "project_writable": policy.project_writable}


def pause(
    *names: Sandboxes,
    disk: Annotated[bool, Arg("Save memory to disk and stop the processes; fail if that is not possible.")] = False,
    hold: Annotated[bool, Arg("Keep memory in RAM: fast, but lost if the processes end.")] = False,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Pause sandboxes after their turn; the next use resumes them.

    Memory is saved to disk where the tier can (microvm; e2b at the service), else kept in RAM (jail).
    """
    if disk and hold:
        raise UsageError("--disk and --hold cannot be combined.", hint="Pass either --disk or --hold.")

    async def act(where: Paths, session: Session) -> Outcome:
        to_disk = disk or (not hold and session.sandbox in REMEMBERING)
        now = asyncio.run(sandbox_operations.pause(where, session, to_disk=to_disk))
        remembered = SnapshotReader(where).of(now)
        return Outcome(
            fields={"session": sandbox_object(now, remembered), "lost": None},
            text=", ".join(["paused", *_where_words(now, remembered)]),
        )

    selection = SessionSelection(
        names=names, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes, only_sandboxed=True
    )
    return run_on_each(user_paths(), selection, ALIVE - {SessionState.PAUSED}, act, "paused", wants_json=wants_json)


def _where_words(session: Session, remembered: StoredSnapshots) -> list[str]:
    """Return where the memory of a sandbox is that was paused."""
    if session.sandbox_state is not None and session.sandbox_state.phase is not SandboxPhase.PAUSED:
        return ["and resumed since by another command"]
    held = session.sandbox_state is not None and session.sandbox_state.held
    kept = "at the service" if session.sandbox == "e2b" else "on disk"
    snapshots = [f"memory snapshot {kept} ({snapshot_words(each, time.time())})" for each in remembered.snapshots]
    return [*(["memory kept in RAM"] if held else []), *snapshots]


def fork(
    name: SandboxArgument,
    new_name: Annotated[str, Arg("Name of the fork (default: the same name with a number).", ("NAME",))] = "",
    /,
    *,
    at: Annotated[str, Arg("Checkpoint to fork from, without memory (default: the current state).")] = "",
    wants_json: Json = False,
) -> None:
    """Fork a sandbox, and print the fork's session id; both keep running independently.

    A fork of a running microvm has its files and all memory: the source is saved to disk, then resumed. Any other
    fork has the files and the saved interpreter state. The output says which.
    """
    where = user_paths()
    session = find_here(read_fleet(where), name)
    made = asyncio.run(sandbox_operations.fork(where, session, new_name, at))
    if wants_json:
        new = read_session(where, made.session)
        print_json(session=sandbox_object(new, SnapshotReader(where).of(new)), lost=made.lost or None)
        return
    say(made.session)
    note(f"{read_session(where, made.session).name} begins as {session.name}, {describe_origin(made.origin)}.")
    if made.lost:
        note(f"{session.name} lost state by the fork: {made.lost.rstrip('.')}.")


def sandboxed(where: Paths) -> list[Session]:
    return [session for session in read_fleet(where).sessions if session.mode is Mode.INTERPRETER]
