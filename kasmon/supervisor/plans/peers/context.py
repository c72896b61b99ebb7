"""What a task's agent may know of its peers, in its session's `context.json`, rewritten whenever it changes.

`kasmon ctx` reads states from the logs. It takes branches and files from here, as these require reading worktrees.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.placement import placed_machine
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import ACTIVE, PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths, read_json, write_private
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.link_client import error_of
from kasmon.supervisor.machines.link_client import run as run_elsewhere

SEND_S: Final = 30.0
"""How long a machine may take to store contexts, in seconds."""
NOTES_BYTES: Final = 64 << 10
"""How much of the notes is sent to other machines: their end."""


class TaskPeer(msgspec.Struct, frozen=True):
    """One task of a wave, as its peers see it."""

    task: int
    id: str | None = None
    """Its session; None before it began."""
    name: str | None = None
    title: str = ""
    task_state: str = ""
    state: str | None = None
    branch: str | None = None
    files: tuple[str, ...] = ()
    """The files it changed so far, in its own worktree."""
    machine: str = ""
    """The registered machine that it runs on, as the plan's runner calls it; empty: the runner's own."""
    is_agent: bool = True
    """Whether it takes messages; a shell would execute them."""
    waits: str | None = None
    done: str | None = None


class TaskContext(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a task's agent in its plan, and its peers."""

    schema: int = 1
    plan: str
    name: str
    task: int
    wave: int
    peers: int
    """The size of the wave, including this task."""
    title: str
    notes: str
    """The file of the plan's notes; on another machine than the runner's, of a copy of their end."""
    machine: str = ""
    """The machine of the session, as `TaskPeer` has it."""
    peer_sessions: tuple[TaskPeer, ...] = ()


def context_of(paths: Paths, session: SessionId) -> TaskContext | None:
    """Return the context last written for *session*; None if there is none, or it cannot be read."""
    return read_json(paths.context(session), TaskContext, None)


def now_of(peer: Session) -> dict[str, Any]:
    """Return the logged state of *peer*, in the form shown to other agents."""
    return {
        "id": peer.id,
        "name": peer.name,
        "task": peer.task,
        "state": peer.state.value,
        "waits": peer.waits or None,
        "done": peer.done,
    }


class DistantContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a session on another machine."""

    session: SessionId
    context: TaskContext
    notes: str
    """The end of the plan's notes."""


class WriteContexts(msgspec.Struct, frozen=True, kw_only=True):
    """What `kasmon task context` reads on the machine of the sessions."""

    contexts: tuple[DistantContext, ...]


def store_contexts(paths: Paths, request: WriteContexts) -> tuple[SessionId, ...]:
    """Write the contexts of another machine's runner for sessions here; return for which. Blocks.

    It is done only for sessions of a task of the same number, in a plan of the same name.
    """
    fleet, stored = read_fleet(paths), []
    for each in request.contexts:
        session = fleet.get(each.session)
        if session is None or session.via or (session.plan, session.task) != (each.context.plan, each.context.task):
            continue
        notes = paths.folder(session.id) / "notes.md"
        with contextlib.suppress(OSError):
            write_private(notes, each.notes.encode())
            context = msgspec.structs.replace(each.context, notes=str(notes))
            write_private(paths.context(session.id), msgspec.json.encode(context))
            stored.append(session.id)
    return tuple(stored)


class TaskContexts:
    """The `context.json` files of one plan's sessions, here and on registered machines."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._written: dict[SessionId, bytes] = {}
        self._distant: dict[str, dict[SessionId, DistantContext]] = {}
        """Machine -> the contexts of its sessions."""
        self._sent: dict[str, dict[SessionId, DistantContext]] = {}

    def write(self, plan: Plan, run: PlanRun, fleet: Fleet, files: Mapping[str, tuple[str, ...]]) -> None:
        """Write the contexts that changed since the last call; blocks. A session whose folder is gone is left out.

        *files*: task -> the files that it changed so far.
        """
        seen = {session.id: session for session in fleet.sessions}
        waves: dict[int, list[TaskPeer]] = {}
        for task in plan.tasks:
            at = run.of(task.id)
            session = seen.get(SessionId(at.session))
            peer = TaskPeer(
                task=task.number,
                id=at.session or None,
                name=at.name or None,
                title=task.title,
                task_state=at.state.value,
                state=None if session is None else session.state.value,
                branch=at.branch or None,
                files=files.get(task.id, ()),
                machine=placed_machine(plan, task, run),
                is_agent=not task.run,
                waits=None if session is None else session.waits or None,
                done=None if session is None else session.done,
            )
            waves.setdefault(task.wave, []).append(peer)
        self._distant, notes = {}, self._paths.plan(run.plan) / "notes.md"
        for task in plan.tasks:
            at = run.of(task.id)
            if at.state not in ACTIVE or SessionId(at.session) not in seen:
                continue
            peers = waves[task.wave]
            context = TaskContext(
                plan=run.plan,
                name=plan.name,
                task=task.number,
                wave=task.wave,
                peers=len(peers),
                title=task.title,
                notes=str(notes),
                machine=placed_machine(plan, task, run),
                peer_sessions=tuple(peer for peer in peers if peer.task != task.number),
            )
            id_ = SessionId(at.session)
            if seen[id_].via:
                distant = DistantContext(session=id_, context=context, notes=_end_of(notes))
                self._distant.setdefault(seen[id_].via, {})[id_] = distant
            else:
                self._write(id_, msgspec.json.encode(context))

    def unsent(self) -> list[str]:
        """Return the machines with sessions whose contexts changed since they were sent there."""
        return [machine for machine, contexts in self._distant.items() if contexts != self._sent.get(machine)]

    def send(self, machine: str) -> None:
        """Send the contexts of the sessions on *machine* there. Blocks. Raises as `run`, or what it reports."""
        contexts = self._distant.get(machine, {})
        request = WriteContexts(contexts=tuple(contexts.values()))
        arguments = ["task", "context", "--json"]
        output = run_elsewhere(self._paths, machine, arguments, msgspec.json.encode(request), limit_s=SEND_S)
        if output.exit_code:
            raise error_of(machine, output)
        self._sent[machine] = contexts

    def _write(self, session: SessionId, content: bytes) -> None:
        if self._written.get(session) == content:
            return
        try:
            write_private(self._paths.context(session), content)
        except OSError:
            return
        self._written[session] = content


def _end_of(notes: Path) -> str:
    """Return the last `NOTES_BYTES` of *notes*; empty if they cannot be read."""
    try:
        with notes.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - NOTES_BYTES))
            return file.read(NOTES_BYTES).decode("utf-8", "ignore")
    except OSError:
        return ""
