"""Follow the plans for display: one frozen `PlanBoard` for each, a new one after each change.

It only reads: a plan's log, its approved text, its file, its runner's lock. Refreshing unchanged plans takes a few
`stat` calls.
"""

import asyncio
import contextlib
import operator
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.fleet import Fleet, find_started, group_by_starter
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan, describe_fault
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.scheduler import NextSteps, next_steps
from kasmon.model.plan.start_limits import NO_LIMITS
from kasmon.model.session import Session
from kasmon.paths import Paths, read_stamp
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.edit import PlanEdit, build_first_edit, find_edit
from kasmon.supervisor.plans.folders import PlanFile, PlanFolders
from kasmon.supervisor.plans.start_limits import find_start_limits
from kasmon.supervisor.plans.view import apply_config, approved_plan, is_of_other_plan, logged_sessions

LOOK_S: Final = 0.25
"""How often plans are refreshed while one has not ended, in seconds."""
SELDOM_S: Final = 1.0
"""How often if all have ended, and how often files and locks are checked, in seconds."""
MOST: Final = 50
"""At most this many plans are shown, the newest ones."""


class PlanBoard(msgspec.Struct, frozen=True, kw_only=True):
    """One plan at one moment, with the sessions of its tasks."""

    id: str
    """The plan's id; for one that never ran, its file's path, which no id looks like."""
    plan: Plan
    run: PlanRun
    ahead: NextSteps = NextSteps((), {})
    sessions: Mapping[str, Session] = {}
    """By session id; includes sessions of earlier attempts."""
    children: Mapping[str, tuple[Session, ...]] = {}
    """Session id -> the sessions that its agent started, those that theirs did, and so on, oldest first."""
    is_run: bool = True
    """Whether a runner process runs it now."""
    edit: PlanEdit | None = None
    """None if its file equals what runs, or is gone."""
    problem: str = ""
    """Why it cannot be shown completely."""

    @property
    def has_begun(self) -> bool:
        """Whether it ever ran; otherwise it is a file in one of the plan folders."""
        return self.run.began_at > 0


class PlanBoards:
    """All plans of one kasmon. Its methods may be called from any thread, and may block."""

    def __init__(self, paths: Paths, fleet: Callable[[], Fleet], config: Callable[[], Config]) -> None:
        self._paths = paths
        self._fleet, self._config = fleet, config
        self._busy = threading.Lock()
        self._watched: dict[str, _PlanWatch] = {}
        self._folder_stamp = (0, 0, 0)
        self._grouped_of: Fleet | None = None
        self._groups: dict[str, list[Session]] = {}
        self._started: Mapping[SessionId, Sequence[Session]] = {}
        """The sessions that agents started, by the session whose agent did."""
        self._copies: dict[str, Session] = {}
        """The sessions of other machines, by id."""
        self._boards: tuple[PlanBoard, ...] = ()
        self._files = _Files(paths)

    def read(self) -> tuple[PlanBoard, ...]:
        """Return the plans now: first those that have not ended, then the ended ones, the newest of each first.

        An unchanged plan is the same object as before, and so is the whole tuple if no plan changed.
        """
        with self._busy:
            self._find()
            fleet = self._fleet()
            self._group(fleet)
            config = self._config()
            boards = [
                watched.read(
                    (*self._groups.get(id_, ()), *watched.find_copies(self._copies)), config, fleet, self._started
                )
                for id_, watched in self._watched.items()
            ]
            begun = [board for board in boards if board is not None]
            at_work = {board.run.file for board in begun if board.run.state != "ended"}
            files = [board for board in self._files.read(config) if board.id not in at_work]
            found = [*begun, *files]
            found.sort(key=lambda each: (each.run.state == "ended", -(each.run.ended_at or each.run.began_at)))
            if not _are_identical(found, self._boards):
                self._boards = tuple(found)
            return self._boards

    async def changes(self) -> AsyncIterator[tuple[PlanBoard, ...]]:
        """Yield the plans now, then after each change. Never ends by itself; all file access is done in a thread."""
        shown: tuple[PlanBoard, ...] | None = None
        while True:
            boards = await asyncio.to_thread(self.read)
            if boards is not shown:
                shown = boards
                yield boards
            is_at_work = any(board.has_begun and board.run.state != "ended" for board in boards)
            await asyncio.sleep(LOOK_S if is_at_work else SELDOM_S)

    def _find(self) -> None:
        """Add plans that were started since the last refresh."""
        stamp = read_stamp(self._paths.plans)
        if stamp == self._folder_stamp:
            return
        self._folder_stamp = stamp
        newest = plans(self._paths)[-MOST:]
        self._watched = {id_: self._watched.get(id_) or _PlanWatch(self._paths, id_) for id_ in newest}

    def _group(self, fleet: Fleet) -> None:
        if fleet is self._grouped_of:
            return
        self._grouped_of, self._groups = fleet, {}
        self._copies = {str(session.id): session for session in fleet.sessions if session.via}
        self._started = group_by_starter(fleet)
        for session in fleet.sessions:
            if session.plan in self._watched and not is_of_other_plan(self._paths, session):
                self._groups.setdefault(session.plan, []).append(session)


class _Files:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._config: Config | None = None
        self._folders = PlanFolders(())
        self._looked_at = float("-inf")
        self._boards: dict[PlanFile, PlanBoard] = {}

    def read(self, config: Config) -> list[PlanBoard]:
        """Return them, refreshed once a second; an unchanged one is the same object."""
        if config is not self._config:
            self._config, self._looked_at = config, float("-inf")
            self._folders = PlanFolders(config.plans.folders, tuple(config.agents))
            self._boards = {}
        if time.monotonic() - self._looked_at >= SELDOM_S:
            self._looked_at = time.monotonic()
            known = {id(found): board for found, board in self._boards.items() if found.faults or not board.problem}
            self._boards = {
                found: known.get(id(found)) or _file_board(self._paths, found, config) for found in self._folders.read()
            }
        return list(self._boards.values())


def _file_board(paths: Paths, plan_file: PlanFile, config: Config) -> PlanBoard:
    file, plan = Path(plan_file.file), apply_config(plan_file.plan, config)
    edit = build_first_edit(
        paths, plan, file, tuple(describe_fault(file.name, fault) for fault in plan_file.faults), config
    )
    run = PlanRun(name=plan.name, file=plan_file.file, folder=str(file.parent))
    problem = edit.refused[0] if edit.refused else ""
    return PlanBoard(id=plan_file.file, plan=plan, run=run, is_run=False, edit=edit, problem=problem)


class _PlanWatch:
    def __init__(self, paths: Paths, id_: str) -> None:
        self._paths = paths
        self._plan_log = plan_log = PlanLog(paths, id_)
        self._size = -1
        self._sessions: tuple[Session, ...] = ()
        self._children: dict[str, tuple[Session, ...]] = {}
        self._config: Config | None = None
        self._plan, self._agreed = Plan(name=plan_log.plan), ""
        """The plan that runs, and the digest of its text."""
        self._settled: tuple[Plan, Config, Plan] | None = None
        """The last plan completed with defaults, the config used, and the result."""
        self._is_run, self._looked_at = True, float("-inf")
        self._file_stamp: tuple[int, int, int] | None = None
        self._edit: PlanEdit | None = None
        self._edit_of: PlanRun | None = None
        """The progress at which its file was last compared."""
        self._board: PlanBoard | None = None
        self._logged_of: PlanRun | None = None
        self._logged: list[str] = []
        self._limits = NO_LIMITS

    def read(
        self,
        sessions: Iterable[Session],
        config: Config,
        fleet: Fleet,
        started: Mapping[SessionId, Sequence[Session]],
    ) -> PlanBoard | None:
        """Return its board; None until it has begun. *sessions* are its own; *started* as from `group_by_starter`."""
        now = tuple(sessions)
        is_new = self._board is None or config is not self._config or not _are_identical(now, self._sessions)
        is_new |= self._find_children(now, started)
        self._sessions, self._config = now, config
        problem = ""
        try:
            if self._board is None or self._plan_log.run.state != "ended":
                is_new |= self._read()
            if self._plan_log.run.began_at == 0:
                return None
            is_new |= self._read_approved()
            is_new |= self._check_runner_and_file(config)
            is_new |= self._find_limits(config, fleet)
        except (OSError, KasmonError) as error:
            problem = error.message if isinstance(error, KasmonError) else str(error.strerror or error)
        if self._board is None or is_new or problem != self._board.problem:
            self._board = self._build_board(problem)
        return self._board

    def find_copies(self, copies: Mapping[str, Session]) -> list[Session]:
        """Return those of *copies* that are sessions of its tasks, in an order that stays."""
        run = self._plan_log.run
        if copies and run is not self._logged_of:
            self._logged_of, self._logged = run, sorted(logged_sessions(run))
        return [copies[id_] for id_ in self._logged if id_ in copies] if copies else []

    def _find_children(self, sessions: Iterable[Session], started: Mapping[SessionId, Sequence[Session]]) -> bool:
        """Find what the agents of *sessions* started; return whether that changed."""
        before, found = self._children, {str(each.id): find_started(started, each.id) for each in sessions}
        self._children = {session: children for session, children in found.items() if children}
        return before.keys() != self._children.keys() or any(
            not _are_identical(children, before[session]) for session, children in self._children.items()
        )

    def _read(self) -> bool:
        if (size := self._plan_log.size()) == self._size:
            return False
        self._size = size
        return self._plan_log.more()

    def _read_approved(self) -> bool:
        """Read the approved text if its digest changed; return whether it did."""
        digest = self._plan_log.run.digest
        if digest == self._agreed:
            return False
        self._plan = approved_plan(self._plan_log)
        self._agreed = digest
        return True

    def _find_limits(self, config: Config, fleet: Fleet) -> bool:
        """Find what limits the start of its tasks, while it has not ended; return whether that changed."""
        before, self._limits = self._limits, NO_LIMITS
        if self._plan_log.run.state != "ended":
            self._limits = find_start_limits(config, self._plan, self._sessions, fleet.sessions)
        return before != self._limits

    def _check_runner_and_file(self, config: Config) -> bool:
        """Check the runner's lock and the plan's file, once a second; return whether one changed."""
        before = self._is_run, self._edit
        if self._plan_log.run.state == "ended":
            self._is_run, self._edit = False, None
        elif time.monotonic() - self._looked_at >= SELDOM_S:
            self._looked_at = time.monotonic()
            self._is_run = start.is_run(self._plan_log)
            self._compare_file(config)
        return before != (self._is_run, self._edit)

    def _compare_file(self, config: Config) -> None:
        file = Path(self._plan_log.run.file)
        stamp = read_stamp(file)
        if stamp == self._file_stamp and self._plan_log.run is self._edit_of:
            return
        self._file_stamp, self._edit_of, self._edit = stamp, self._plan_log.run, None
        if any(stamp):
            with contextlib.suppress(KasmonError, OSError):
                text, run = start.text_of(file), self._plan_log.run
                self._edit = find_edit(self._paths, text, file, self._plan, run, config)

    def _build_board(self, problem: str) -> PlanBoard:
        plan_log, config = self._plan_log, self._config or Config()
        if self._settled is None or self._settled[0] is not self._plan or self._settled[1] is not config:
            self._settled = (self._plan, config, apply_config(self._plan, config))
        plan, sessions = self._settled[2], {str(session.id): session for session in self._sessions}
        return PlanBoard(
            id=plan_log.plan,
            plan=plan,
            run=plan_log.run,
            ahead=next_steps(plan, plan_log.run, sessions, plan.limit, time.time(), limits=self._limits),
            sessions=sessions,
            children=self._children,
            is_run=self._is_run,
            edit=self._edit,
            problem=problem,
        )


def _are_identical(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))
