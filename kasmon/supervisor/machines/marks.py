"""The marks of sessions in the list that are read from their files: branches, pull requests, files changed by several.

Each machine reads its own (`kasmon ls --json --marks`). A dashboard asks the others after something happened there.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from kasmon.config import Config
from kasmon.config.profile import programs
from kasmon.errors import KasmonError, RemoteUnreachableError
from kasmon.model.collisions import CollisionSummary, FileCollision, summarize
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchState, BranchSummary, PullRequest
from kasmon.supervisor.finish.pull_requests import stored_pull_request
from kasmon.supervisor.machines.link_client import MARKS_COMMAND, error_of, parse_reply, run
from kasmon.supervisor.worktrees.collisions import CollisionDetector
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of
from kasmon.supervisor.worktrees.shared_checkout import describe_sharers, list_sharers

ACTIVE_S: Final = 10.0
"""A machine is asked at most this often, in seconds, while something happens there."""
REST_S: Final = 120.0
"""A machine where nothing happens is asked this often, in seconds: a person may have committed there."""
LOOK_S: Final = 1.0
LIMIT_S: Final = 60.0
"""How long a machine may take to answer, in seconds."""
MOST_HITS: Final = 1000
"""At most so many collisions of one session are read."""

Read = TypeVar("Read")


class Collision(msgspec.Struct, frozen=True):
    """Another session changes the same file."""

    session: SessionId
    file: str
    lines: bool
    """Whether it changes the same lines."""


class SessionMarks(msgspec.Struct, frozen=True):
    """What is marked of one session, as a part of its JSON object."""

    id: SessionId
    branch: BranchState | None = None
    pull_request: PullRequest | None = None
    collisions: tuple[Collision, ...] = ()
    sharers: tuple[SessionId, ...] = ()
    """The agents whose checkout it came into."""

    @property
    def summary(self) -> BranchSummary | None:
        return BranchSummary(state=self.branch, pull_request=self.pull_request) if self.branch else None

    def warning(self, others: Mapping[SessionId, Session]) -> CollisionSummary | None:
        """Return its collisions as its row shows them; None without any. *others*: the sessions of its machine."""
        if hits := [hit for hit in self.collisions[:MOST_HITS] if hit.session in others]:
            named = [(others[hit.session].label, FileCollision("", hit.file, hit.lines)) for hit in hits]
            return summarize(named)._replace(others=tuple(dict.fromkeys(hit.session for hit in hits)))
        if sharers := [others[each] for each in self.sharers if each in others]:
            return CollisionSummary(describe_sharers(sharers), lines=False)
        return None


class _Reply(msgspec.Struct, frozen=True):
    """What `MARKS_COMMAND` prints."""

    sessions: tuple[SessionMarks, ...]


def read_own_marks(
    paths: Paths, config: Config, sessions: Sequence[Session], branches: Mapping[SessionId, BranchState]
) -> dict[SessionId, SessionMarks]:
    """Return the marks of the sessions of this machine among *sessions*; *branches* were read before. Blocks."""
    own_sessions = [each for each in sessions if not each.via]
    hits = CollisionDetector().sweep(each for each in own_sessions if each.exists and not each.adopted).hits
    profiles = programs(config)
    found = {}
    for session in own_sessions:
        branch, tree = branches.get(session.id), worktree_of(session)
        found[session.id] = SessionMarks(
            id=session.id,
            branch=branch,
            pull_request=stored_pull_request(paths, Path(tree.path), branch.name) if branch and tree else None,
            collisions=tuple(Collision(other, hit.file, hit.lines) for other, hit in hits.get(session.id, ())),
            sharers=tuple(each.id for each in list_sharers(session, own_sessions, profiles)) if session.exists else (),
        )
    return found


def read_marks(paths: Paths, machine: str) -> tuple[SessionMarks, ...]:
    """Return the marks of the sessions of *machine*, as it reads them. Blocks. Raises as `run`, or what it reports."""
    output = run(paths, machine, MARKS_COMMAND, limit_s=LIMIT_S)
    if output.exit_code:
        raise error_of(machine, output)
    return parse_reply(machine, output.stdout, _Reply).sessions


class _Reading(NamedTuple):
    """What was read of one machine."""

    of: tuple[Session, ...]
    """Its sessions as they were then."""
    at: float
    """When, by the monotonic clock."""
    marks: tuple[SessionMarks, ...] = ()


class MachineMarks:
    """The marks of sessions of other machines, for one dashboard. Used on one event loop."""

    def __init__(
        self,
        paths: Paths,
        sessions: Callable[[], tuple[Session, ...]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*sessions*: returns all sessions; the same tuple while none of them changes."""
        self._paths, self._sessions, self._clock = paths, sessions, clock
        self._grouped: tuple[tuple[Session, ...], dict[str, tuple[Session, ...]]] = (), {}
        self._grouped_at = -math.inf
        self._readings: dict[str, _Reading] = {}
        self._tasks: dict[str, asyncio.Task[_Reading]] = {}

    async def branches(self) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        """Yield the branches of sessions that have a worktree, now and after each change; never ends by itself."""

        def read() -> dict[SessionId, BranchSummary]:
            return {mark.id: summary for mark, _ in self._marks() if (summary := mark.summary)}

        async for found in self._changes(read):
            yield found

    async def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        """Yield the sessions whose files others change too, now and after each change; never ends by itself."""

        def read() -> dict[SessionId, CollisionSummary]:
            return {mark.id: warning for mark, of in self._marks() if (warning := mark.warning(of))}

        async for found in self._changes(read):
            yield found

    async def _changes(self, read: Callable[[], Read]) -> AsyncIterator[Read]:
        shown = None
        while True:
            self._refresh()
            if (now := read()) != shown:
                shown = now
                yield now
            await asyncio.sleep(LOOK_S)

    def _marks(self) -> list[tuple[SessionMarks, dict[SessionId, Session]]]:
        found = []
        for machine, of in self._by_machine().items():
            if (reading := self._readings.get(machine)) is not None:
                known = {each.id: each for each in of}
                found += [(mark, known) for mark in reading.marks if mark.id in known]
        return found

    def _by_machine(self) -> dict[str, tuple[Session, ...]]:
        """Return the sessions of each machine, at most `LOOK_S` old: thousands are not grouped for each reader."""
        if (at := self._clock()) >= self._grouped_at + LOOK_S and self._grouped[0] is not (now := self._sessions()):
            self._grouped_at = at
            found: dict[str, list[Session]] = {}
            for each in now:
                if each.via and each.exists:
                    found.setdefault(each.via, []).append(each)
            self._grouped = now, {machine: tuple(of) for machine, of in found.items()}
        return self._grouped[1]

    def _refresh(self) -> None:
        """Take what was read, and begin to read what is due."""
        machines = self._by_machine()
        for machine, task in list(self._tasks.items()):
            if task.done():
                self._readings[machine] = task.result()
                del self._tasks[machine]
        for gone in self._readings.keys() - machines.keys():
            del self._readings[gone]
        for machine, of in machines.items():
            if machine not in self._tasks and _is_due(self._readings.get(machine), of, self._clock()):
                self._tasks[machine] = asyncio.create_task(self._read(machine, of))

    async def _read(self, machine: str, of: tuple[Session, ...]) -> _Reading:
        before = self._readings.get(machine)
        try:
            marks = await asyncio.to_thread(read_marks, self._paths, machine)
        except RemoteUnreachableError:
            marks = before.marks if before else ()  # its rows are dimmed: they show what was read last
        except KasmonError:
            marks = ()
        return _Reading(of, self._clock(), marks)


def _is_due(before: _Reading | None, of: tuple[Session, ...], now: float) -> bool:
    """Whether a machine whose sessions are *of* is to be asked, at *now* by the monotonic clock."""
    if before is None or now >= before.at + REST_S:
        return True
    is_changed = len(of) != len(before.of) or any(a is not b for a, b in zip(of, before.of, strict=True))
    return is_changed and now >= before.at + ACTIVE_S
