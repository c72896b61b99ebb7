"""`kasmon sandbox ls` and `kasmon sandbox show`."""

import contextlib
import time
from typing import Any

import msgspec

from kasmon.cli.arguments import Json, SandboxArgument
from kasmon.cli.output.console import print_json, say
from kasmon.cli.sandbox.report import about, row, sandbox_object
from kasmon.errors import KasmonError
from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.sandbox_adoption import end_unfinished, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes.history import SnapshotReader, read_history, read_policy


def list_all(*, wants_json: Json = False) -> None:
    """List sandboxes with their phase, usage and memory snapshot."""
    where = user_paths()
    for unfinished_one in find_unfinished(where, _list_sandboxed(where)):
        with contextlib.suppress(KasmonError):  # `kasmon doctor` reports it
            end_unfinished(where, unfinished_one)
    memory, now = SnapshotReader(where), time.time()
    sessions = [(session, memory.of(session)) for session in _list_sandboxed(where)]
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
        print_json(
            session=sandbox_object(session, remembered) | {"checkpoints_kept": kept} | _read_files(where, session)
        )
        return
    for line in about(session, remembered, points, time.time()):
        say(line)
    policy = read_policy(where, session)
    if policy is not None and policy.hosts:
        say(f"It may reach {', '.join(policy.hosts)}.")
        if policy.refuse:
            say(f"Refused without a request: {', '.join(policy.refuse)}.")


def _read_files(where: Paths, session: Session) -> dict[str, Any]:
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


def _list_sandboxed(where: Paths) -> list[Session]:
    return [session for session in read_fleet(where).sessions if session.mode is Mode.INTERPRETER]
