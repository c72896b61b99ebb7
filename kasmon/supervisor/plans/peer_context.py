"""What a task's agent may know of its peers, in its session's `context.json`, rewritten whenever it changes.

`kasmon ctx` reads states from the logs. It takes branches and files from here, as these require reading worktrees.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import ACTIVE, PlanRun
from kasmon.model.session import Session
from kasmon.paths import Paths, write_private


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
    """The file of the plan's notes."""
    peer_sessions: tuple[TaskPeer, ...] = ()


def context_of(places: Paths, session: SessionId) -> TaskContext | None:
    """Return the context last written for *session*; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(places.context(session).read_bytes(), type=TaskContext)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


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


class TaskContexts:
    """The `context.json` files of one plan's sessions."""

    def __init__(self, places: Paths) -> None:
        self._places = places
        self._written: dict[SessionId, bytes] = {}

    def write(self, plan: Plan, run: PlanRun, fleet: Fleet, files: Mapping[str, tuple[str, ...]]) -> None:
        """Write the contexts that changed since the last call; blocks. A session whose folder is gone is left out.

        Args:
            run: its progress.
            fleet: the sessions as they are now.
            files: task -> the files that it changed so far.
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
            )
            waves.setdefault(task.wave, []).append(peer)
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
                notes=str(self._places.plan(run.plan) / "notes.md"),
                peer_sessions=tuple(peer for peer in peers if peer.task != task.number),
            )
            self._write(SessionId(at.session), msgspec.json.encode(context))

    def _write(self, session: SessionId, content: bytes) -> None:
        if self._written.get(session) == content:
            return
        try:
            write_private(self._places.context(session), content)
        except OSError:
            return
        self._written[session] = content
