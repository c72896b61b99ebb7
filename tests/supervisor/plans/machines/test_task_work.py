"""A task here for a plan of another machine: prepared, started, checked and ended once, however often it is asked."""

import asyncio
import hashlib
import itertools
import os
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config
from kasmon.config.schema import MachineConfig
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.repository.packs import build_pack, read_pack
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.machines import task_work
from kasmon.supervisor.plans.machines.task_requests import (
    AddCommits,
    AttemptReport,
    CheckState,
    EndTask,
    FetchCommits,
    Preparation,
    PrepareTask,
    ReadResult,
    RunTaskCheck,
    StartedTask,
    StartTask,
    TaskKey,
)
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env, end
from tests.support.wait import until

KEY = TaskKey(runner="0123456789abcdef", plan="tidy", number=3, name="3-parser", attempt=1, epoch=1)
put = msgspec.structs.replace


def attempt(number: int, epoch: int = 0, *, task: int = 3) -> TaskKey:
    return put(KEY, attempt=number, epoch=epoch or number, number=task, name=f"{task}-task" if task != 3 else KEY.name)


class Machine:
    """The machine in *env*, asked by a runner whose repository is *repo*."""

    def __init__(self, env: Env, repo: Repo) -> None:
        self.env, self.paths, self.repo = env, env.paths, repo
        self.config = Config()
        self.root = repo.git("rev-list", "--max-parents=0", "HEAD")

    @property
    def folder(self) -> Path:
        """The folder of the task's claim."""
        return self.paths.plan_tasks / KEY.runner / KEY.name

    def prepare(self, key: TaskKey = KEY, commit: str = "", **more: object) -> Preparation:
        request = PrepareTask(key=key, commit=commit or self.repo.head, root=self.root, **more)  # type: ignore[arg-type]
        return asyncio.run(task_work.prepare(self.paths, self.config, request))

    def send(self, key: TaskKey = KEY, excluded: tuple[str, ...] = (), size: int = 200) -> None:
        """Send the runner's HEAD in parts of *size* bytes, each twice."""
        pack = self.env.folder / "sent.pack"
        pack.unlink(missing_ok=True)
        build_pack(self.repo.folder / ".git", [self.repo.head], excluded, pack)
        content, received = pack.read_bytes(), 0
        part = AddCommits(
            key=key,
            commit=self.repo.head,
            root=self.root,
            digest=hashlib.sha256(content).hexdigest(),
            size=len(content),
            offset=0,
            content=b"",
        )
        while received < len(content):
            part = put(part, offset=received, content=content[received : received + size])
            received = task_work.add_commits(self.paths, part).received
            if received < len(content):
                assert task_work.add_commits(self.paths, part).received == received, "a repeated part is not added"

    def ready(self, key: TaskKey = KEY) -> Path:
        """The folder of a prepared attempt."""
        prepared = self.prepare(key)
        if not prepared.workdir:
            self.send(key, prepared.available)
            prepared = self.prepare(key)
        return Path(prepared.workdir)

    def start(self, key: TaskKey = KEY, prompt: str = "hang") -> StartedTask:
        request = StartTask(key=key, agent="scripted", prompt=prompt, wave=1, peers=2)
        return asyncio.run(task_work.start(self.paths, self.config, request))

    def check(self, command: str, key: TaskKey = KEY) -> CheckState:
        request = RunTaskCheck(key=key, task="parser", wave=1, command=command, limit_s=60)
        return task_work.check(self.paths, request)

    def end(self, key: TaskKey = KEY) -> AttemptReport:
        return asyncio.run(task_work.end(self.paths, EndTask(key=key)))

    def session(self, id_: str) -> Session:
        found = read_fleet(self.paths).get(SessionId(id_))
        assert found is not None
        return found

    def sessions(self) -> list[str]:
        return [session.id for session in read_fleet(self.paths).sessions]


@pytest.fixture
def machine(env: Env, tmp_path: Path) -> Machine:
    return Machine(env, Repo(tmp_path / "near", commits=2))


def test_a_task_is_prepared_at_the_commit_that_was_sent_in_parts(machine: Machine) -> None:
    assert machine.prepare() == Preparation(available=())
    machine.send()
    folder, git = Path(machine.prepare().workdir), machine.repo.git
    assert git("rev-parse", "HEAD", at=folder) == machine.repo.head
    assert git("branch", "--show-current", at=folder) == "plan/tidy.3-parser.a1"
    assert git("remote", at=folder) == ""
    assert machine.prepare().workdir == str(folder), "asked again, it is the same folder"
    machine.repo.commit("new.txt")
    available = machine.prepare(attempt(1, task=4)).available
    assert git("rev-parse", "HEAD~1") in available, "only what is new has to be sent"


def test_a_damaged_pack_changes_nothing(machine: Machine) -> None:
    machine.prepare()
    part = AddCommits(
        key=KEY, commit=machine.repo.head, root=machine.root, digest="0" * 64, size=4, offset=0, content=b"PACK"
    )
    with pytest.raises(RefusedError, match="damaged"):
        task_work.add_commits(machine.paths, part)
    assert machine.prepare() == Preparation(available=())
    machine.send()
    assert machine.prepare().workdir


def test_commits_come_from_the_users_own_repository_which_is_unchanged(machine: Machine, tmp_path: Path) -> None:
    own = tmp_path / "src" / "shop"
    machine.repo.git("clone", "--quiet", str(machine.repo.folder), str(own))
    (own / "mine.txt").write_text("not committed\n")
    machine.config = Config(machine=MachineConfig(repositories=(str(tmp_path / "src"),)))

    def state() -> list[str]:
        status = machine.repo.git("status", "--porcelain", "--branch", at=own)
        return [status, machine.repo.git("for-each-ref", at=own), machine.repo.git("worktree", "list", at=own)]

    before = state()
    assert Path(machine.prepare().workdir, "file1.txt").read_text() == "one\n"
    newer = machine.repo.commit("newer.txt")
    assert machine.repo.git("rev-parse", "HEAD~1") in machine.prepare(attempt(2), newer).available
    assert state() == before


def test_commits_come_from_a_remote(machine: Machine) -> None:
    old = machine.repo.git("rev-parse", "HEAD~1")
    assert machine.prepare(commit=old, remote=machine.repo.folder.as_uri()).workdir
    with pytest.raises(RefusedError, match="cannot fetch from 'file:///nowhere'"):
        machine.prepare(attempt(2), remote="file:///nowhere")


def test_a_session_starts_once(machine: Machine) -> None:
    folder = machine.ready()
    started = machine.start()
    assert machine.start() == started
    assert machine.sessions() == [started.session]
    session = machine.session(started.session)
    assert (session.workdir, session.plan, session.task, session.wave) == (str(folder), "tidy", 3, 1)
    assert (folder / ".kasmon" / "task-3").is_dir()


def test_an_interrupted_start_continues(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(task_work, "begin", killed)
    with pytest.raises(KeyboardInterrupt):
        machine.start()
    monkeypatch.undo()
    (created,) = machine.sessions()
    claim = machine.folder / "claim.json"
    fields = msgspec.json.decode(claim.read_bytes())
    claim.write_bytes(msgspec.json.encode(fields | {"session": ""}))  # killed before that was written
    assert machine.start().session == created
    assert machine.sessions() == [created]


def test_work_returns_as_a_pack_of_the_new_commits(machine: Machine, tmp_path: Path) -> None:
    folder = machine.ready()
    machine.start(prompt="say hi")
    commit = machine.repo.commit("far.bin", os.urandom(3000).hex(), at=folder)
    (folder / "left.txt").write_text("left\n")
    (folder / ".kasmon" / "task-3" / "result.md").write_text("done\n")
    result = task_work.read_result(machine.paths, ReadResult(key=KEY))
    machine.repo.commit("later.txt", at=folder)
    assert (result.text, result.commit, result.changed) == ("done\n", commit, 2)
    assert result.uncommitted == "1 file is not committed"
    base = machine.repo.head
    request = FetchCommits(key=KEY, commit=commit, excluded=(base,))
    fetched = task_work.fetch(machine.paths, request)
    assert hashlib.sha256(fetched.content).hexdigest() == fetched.digest
    assert task_work.fetch(machine.paths, put(request, offset=10)).content == fetched.content[10:]
    (tmp_path / "pack").write_bytes(fetched.content)
    read_pack(machine.repo.folder / ".git", [commit], tmp_path / "pack", trusted=False, limit_bytes=1 << 20)
    assert machine.repo.git("rev-list", f"{base}..{commit}") == commit
    with pytest.raises(RefusedError, match="is no commit of"):
        task_work.fetch(machine.paths, put(request, commit=base))


def test_a_check_runs_once_and_continues_without_its_caller(machine: Machine) -> None:
    machine.ready()
    runs, go = machine.folder / "runs", machine.folder / "go"
    command = f"echo $KASMON_PLAN $KASMON_TASK >> {runs}; until [ -e {go} ]; do sleep 0.05; done; exit 3"
    assert not machine.check(command).has_ended
    until(runs.exists, what="the check")
    assert not machine.check(command).has_ended
    go.touch()
    until(lambda: machine.check(command).has_ended, what="its end")
    state = machine.check(command)
    assert (state.is_passed, state.exit_code) == (False, 3)
    assert runs.read_text() == "tidy 3\n"


def test_a_check_whose_process_was_killed_runs_again_but_not_beside_itself(machine: Machine) -> None:
    machine.ready()
    runs, go, alone, twice = (machine.folder / name for name in ("runs", "go", "alone", "twice"))
    command = f"exec 9>{alone}; flock -n 9 || touch {twice}; echo >> {runs}; until [ -e {go} ]; do sleep 0.05; done"
    machine.check(command)
    until(runs.exists, what="the check")
    end(lock_holder(machine.folder / "check-1-1.lock") or 0)
    until(lambda: not machine.check(command).has_ended and runs.read_text() == "\n\n", what="the second run")
    go.touch()
    until(lambda: machine.check(command).has_ended, what="its end")
    assert not twice.exists()


def test_ending_an_attempt_stops_it_and_reports_its_work(machine: Machine) -> None:
    folder = machine.ready()
    started = machine.start()
    machine.check("sleep 600")
    machine.repo.commit("far.txt", at=folder)
    report = machine.end()
    assert (report.session, report.state, report.commits, report.changed) == (started.session, "stopped", 1, 1)
    assert not machine.session(started.session).exists
    assert lock_holder(machine.folder / "check-1-1.lock") is None
    assert machine.end() == report
    for refused in (machine.prepare, machine.start, lambda: machine.check("true")):
        with pytest.raises(RefusedError, match="has been ended"):
            refused()
    assert task_work.read_result(machine.paths, ReadResult(key=KEY)).changed == 1, "what it did can be read"


def test_the_next_attempt_ends_the_last_and_continues_in_its_folder(machine: Machine) -> None:
    folder = machine.ready()
    first = machine.start()
    commit = machine.repo.commit("far.txt", at=folder)
    (folder / "left.txt").write_text("left\n")
    assert machine.ready(attempt(2)) == folder
    assert machine.repo.git("branch", "--show-current", at=folder) == "plan/tidy.3-parser.a2"
    assert machine.repo.git("rev-parse", "HEAD", at=folder) == commit
    assert (folder / "left.txt").exists()
    second = machine.start(attempt(2))
    report = machine.end()
    assert (report.session, report.state, report.commits) == (first.session, "stopped", 1)
    assert not machine.session(first.session).exists
    assert machine.session(second.session).exists


def test_an_attempt_from_other_commits_gets_a_folder_of_its_own(machine: Machine) -> None:
    folder = machine.ready()
    machine.repo.commit("far.txt", at=folder)
    machine.repo.commit("near.txt")
    other = machine.ready(attempt(2))
    assert other != folder
    assert (other / "near.txt").exists()
    assert not (other / "far.txt").exists()


def test_a_task_continues_in_the_folder_of_another(machine: Machine) -> None:
    folder = machine.ready()
    done = machine.repo.commit("far.txt", at=folder)
    prepared = machine.prepare(attempt(1, task=4), done, follows=3)
    assert prepared == Preparation(workdir=str(folder), branch="plan/tidy.4-task.a1")
    with pytest.raises(RefusedError, match="did not work on this machine"):
        machine.prepare(attempt(1, task=5), done, follows=9)


OLDER = [attempt(1, 3), attempt(2, 2), attempt(1, 1), attempt(1, 9)]
"""Older than attempt 2 in placement 3, in one of both."""


@pytest.mark.parametrize("key", OLDER, ids=lambda key: f"{key.attempt}-{key.epoch}")
def test_a_command_for_an_older_attempt_is_refused_and_changes_nothing(machine: Machine, key: TaskKey) -> None:
    current = attempt(2, 3)
    machine.ready(current)
    started = machine.start(current)
    claim = (machine.folder / "claim.json").read_bytes()
    for refused in (
        lambda: machine.prepare(key),
        lambda: machine.send(key),
        lambda: machine.start(key),
        lambda: machine.check("false", key),
        lambda: task_work.read_result(machine.paths, ReadResult(key=key)),
        lambda: task_work.fetch(machine.paths, FetchCommits(key=key, commit=machine.repo.head, excluded=())),
    ):
        with pytest.raises(RefusedError, match="lost its claim: attempt 2 "):
            refused()
    assert machine.end(key).state == "none"
    assert (machine.folder / "claim.json").read_bytes() == claim
    assert machine.sessions() == [started.session]
    assert machine.session(started.session).exists


def test_an_attempt_that_was_ended_before_it_arrived_cannot_start(machine: Machine) -> None:
    assert machine.end().state == "none"
    with pytest.raises(RefusedError, match="has been ended"):
        machine.prepare()
    assert machine.ready(attempt(2)).is_dir()


HOSTILE = [
    put(KEY, runner="../../../../tmp/x"),
    put(KEY, plan="a/../b"),
    put(KEY, name="-b"),
    put(KEY, name="x\n"),
    put(KEY, number=0),
    put(KEY, attempt=-1),
]


@pytest.mark.parametrize("key", HOSTILE, ids=["runner", "plan", "option", "line", "number", "attempt"])
def test_an_invalid_key_is_refused(machine: Machine, key: TaskKey) -> None:
    with pytest.raises(UsageError):
        machine.prepare(key)
    assert not machine.paths.plan_tasks.exists()


@pytest.mark.parametrize("folder", ["/etc", "../other", "link/inside"])
def test_a_folder_outside_of_the_worktree_is_refused(machine: Machine, folder: str) -> None:
    (machine.repo.folder / "link").symlink_to("/tmp")
    machine.repo.git("add", "link")
    machine.repo.git("commit", "--quiet", "-m", "a link")
    machine.prepare()
    machine.send()
    with pytest.raises(KasmonError, match="leads out of the worktree"):
        machine.prepare(folder=folder)


PLACEMENTS = [attempt(1, 1), attempt(1, 2), attempt(2, 3)]
"""As one runner names them, in this order; they can arrive in any."""


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_the_newest_claim_wins_in_any_order_of_requests(machine: Machine, order: tuple[int, ...]) -> None:
    machine.ready(attempt(1, task=9))  # the commits are here
    newest = -1
    for index in order:
        key = PLACEMENTS[index]
        if index < newest:
            with pytest.raises(RefusedError, match="lost its claim"):
                machine.prepare(key)
        else:
            newest = index
            assert machine.prepare(key).branch == key.branch
        held = msgspec.json.decode((machine.folder / "claim.json").read_bytes())
        assert (held["attempt"], held["epoch"]) == (PLACEMENTS[newest].attempt, PLACEMENTS[newest].epoch)
    reports = [machine.end(key).state for key in reversed(PLACEMENTS)]
    assert reports == ["none"] * 3
    with pytest.raises(RefusedError, match="has been ended"):
        machine.prepare(PLACEMENTS[-1])
