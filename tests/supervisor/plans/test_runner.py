"""The runner of a plan: what one that was killed left, the next one takes up; real hosts, scripted agents."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from kasmon.config import Config
from kasmon.config.schema import Plans
from kasmon.errors import KasmonError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import spawn_runner
from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanAction, PlanDecisionMade, TaskBegan, decode
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun, TaskState
from kasmon.model.plan.prompt import session_name
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.peers.context import TaskPeer, context_of
from kasmon.supervisor.plans.recover import find_interrupted_plans, recover
from kasmon.supervisor.plans.runner import PlanRunner
from kasmon.supervisor.plans.task_actions import TaskActions
from kasmon.supervisor.plans.task_session import TaskStarter
from kasmon.supervisor.sessions.create import NewSession, prepare
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env
from tests.support.wait import auntil, until

TEXT = 'advance = "auto"\nworktree = "folder"\n[[task]]\nid = "a"\nprompt = "say hello"\n'
CONFIG = Config(default_agent="scripted", plans=Plans(max_load=0, believe=True))


class Site:
    """A plan that somebody agreed to in a kasmon of its own."""

    def __init__(self, env: Env, text: str = TEXT, *, headless: bool = False) -> None:
        self.env, self.paths = env, env.paths
        self.folder = env.folder / "work"
        self.folder.mkdir(exist_ok=True)
        self.plan: Plan = read(text, "tidy.toml")
        file = self.folder / "tidy.toml"
        self.book: PlanLog = start.store_approved_plan(
            self.paths, self.plan, text, file, self.folder, headless=headless
        )

    def session(self, id_: str = "a") -> str:
        """A session that was made for the first attempt of *id_*, and not started."""
        task = self.plan.task(id_)
        wanted = NewSession(
            name=session_name(self.book.plan, task, 1),
            agent="scripted",
            mode=Mode.SDK,
            workdir=str(self.folder),
            prompt="say hello",
            plan=self.book.plan,
            task=task.number,
            wave=task.wave,
        )
        return prepare(self.paths, CONFIG, wanted, time.time()).session

    def fleet(self) -> Fleet:
        return read_fleet(self.paths)

    def begun(self) -> list[tuple[str, int, str]]:
        lines = (self.book.folder / "events.jsonl").read_bytes().splitlines()
        return [(f.task, f.attempt, f.session) for f in map(decode, lines) if isinstance(f, TaskBegan)]

    @asynccontextmanager
    async def runs(self, config: Config = CONFIG) -> AsyncIterator[Callable[[], PlanRun]]:
        """A runner in this process; how far it came."""
        runner = PlanRunner(self.paths, self.book, config)
        running = asyncio.create_task(runner.run())
        try:
            yield lambda: self.book.run
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def run(self) -> PlanRun:
        """Until it has ended."""
        async with asyncio.timeout(30):
            await PlanRunner(self.paths, self.book, CONFIG).run()
        return self.book.run


@pytest.fixture
def site(env: Env) -> Site:
    return Site(env)


@pytest.fixture
def hanging(env: Env) -> Site:
    return Site(env, TEXT.replace("say hello", "hang"))


@pytest.fixture
def homeless(env: Env) -> Site:
    """It wants a worktree, and is in no repository."""
    return Site(env, TEXT.replace('"folder"', '"own"'))


off = asyncio.to_thread
"""What blocks is done off the loop, on which the runner itself is tested."""


async def test_a_session_that_was_created_and_not_logged_is_used_and_no_second_one_created(site: Site) -> None:
    """The runner before died between the two."""
    session = await off(site.session)

    assert "claimed" == (await site.run()).outcome

    assert [("a", 1, session)] == await off(site.begun)
    [only] = (await off(site.fleet)).sessions
    assert (session, 1, SessionState.ENDED) == (only.id, only.generation, only.state)


async def test_an_attempt_that_was_logged_and_not_started_is_started_once(site: Site) -> None:
    session = await off(site.session)
    began = TaskBegan(at=time.time(), task="a", attempt=1, session=session, workdir=str(site.folder))
    await off(site.book.add, began)

    assert "claimed" == (await site.run()).outcome

    [only] = (await off(site.fleet)).sessions
    assert (session, 1, 1) == (only.id, only.generation, only.turns)


async def test_an_attempt_that_never_got_a_session_has_failed(site: Site) -> None:
    await off(site.book.add, TaskBegan(at=time.time(), task="a", attempt=1, session=""))

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED)

    assert ("its session could not be created",) == now().of("a").failures


async def test_a_task_that_cannot_start_has_failed_with_the_reason_and_the_user_decides(homeless: Site) -> None:
    async with homeless.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED)
        await off(homeless.book.record_decision, "skip", "a")
        await auntil(lambda: now().state == "ended")

    assert "is not in a git repository" in now().of("a").failures[0]
    assert ("done", "1 skipped") == (now().outcome, now().why)


async def test_a_decision_is_read_while_an_agent_works(hanging: Site) -> None:
    async with hanging.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.RUNNING)
        await off(hanging.book.add, PlanDecisionMade(at=time.time(), decision="skip", task="a"))
        await auntil(lambda: now().state == "ended")

    assert [SessionState.ENDED] == [session.state for session in (await off(hanging.fleet)).sessions]


async def test_a_plan_without_its_agreed_text_does_not_wait_endlessly(site: Site) -> None:
    await off(lambda: site.book.agreed.unlink())

    with pytest.raises(KasmonError, match="there is no plan 'tidy'"):
        await site.run()


async def test_an_agreed_edit_is_applied_while_it_runs(hanging: Site) -> None:
    more = TEXT.replace("say hello", "hang") + '[[task]]\nid = "b"\nprompt = "say later"\n'

    async with hanging.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.RUNNING)
        await off(start.apply_edit, hanging.book, more)
        await auntil(lambda: now().of("b").state is TaskState.DONE)
        assert TaskState.RUNNING is now().of("a").state


async def test_a_log_that_cannot_be_written_is_retried_until_it_can(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: a file may not grow beyond the log's size. Nothing is begun twice, and nothing is lost."""
    log = site.book.folder / "events.jsonl"

    def fill() -> int:
        with log.open("ab") as file:
            file.write(b"x" * (1 << 20) + b"\n")
        return log.stat().st_size

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (await off(fill), hard))
    try:
        async with site.runs() as now:
            await auntil(lambda: "cannot write" in caplog.text)
            assert TaskState.WAITING is now().of("a").state
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await auntil(lambda: now().state == "ended")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [1] == [attempt for _, attempt, _ in await off(site.begun)]
    assert 1 == len((await off(site.fleet)).sessions)


CHECKED = 'agent = "scripted"\n' + TEXT + 'check = "touch began; sleep 600"\n'


@pytest.fixture
def checked(env: Env) -> Site:
    """Its check does not end by itself."""
    return Site(env, CHECKED)


def checks(site: Site) -> list[psutil.Process]:
    """What runs in the plan's folder: the check, with what it started."""
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(site.folder)]


async def test_a_check_of_a_killed_runner_is_ended_by_the_next_one_which_checks_again(checked: Site) -> None:
    runner = await off(spawn_runner, checked.paths, checked.book.plan)
    await auntil((checked.folder / "began").exists)
    before = {process.pid for process in await off(checks, checked)}
    await off(runner.kill)
    await off(runner.wait)
    await off((checked.folder / "began").unlink)

    async with checked.runs():
        await auntil((checked.folder / "began").exists)
        after = {process.pid for process in await off(checks, checked)}

    assert before
    assert not before & after
    assert [] == await off(checks, checked)


async def test_a_check_that_a_killed_runner_left_in_a_stopped_plan_is_ended_by_a_recovery(checked: Site) -> None:
    runner = await off(spawn_runner, checked.paths, checked.book.plan)
    await auntil((checked.folder / "began").exists)
    await off(runner.kill)
    await off(runner.wait)
    await off(checked.book.record_decision, "stop")
    assert await off(checks, checked)

    [left] = await off(find_interrupted_plans, checked.paths, Fleet())
    assert ("run", "it is stopped, and a check of it still runs") == (left.action, left.why)
    assert "continues" == await recover(checked.paths, left)

    await off(until, lambda: not checks(checked))
    await off(until, lambda: lock_holder(checked.book.lock) is None)
    assert [] == await off(find_interrupted_plans, checked.paths, Fleet())


@pytest.mark.parametrize("decision", ["skip", "retry", "abort"])
async def test_a_check_that_the_user_does_not_wait_for_is_ended(checked: Site, decision: PlanAction) -> None:
    async with checked.runs() as now:
        await auntil((checked.folder / "began").exists)
        (before,) = [at.checking for at in now().tasks.values()]
        assert before is not None
        await off(checked.book.record_decision, decision, "" if decision == "abort" else "a")
        await off(until, lambda: not is_running(before.pid, before.pid_started))


async def test_a_start_and_an_end_are_done_once_before_the_fleet_shows_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for kind, name in ((TaskStarter, "start"), (TaskActions, "end")):
        original = getattr(kind, name)

        async def counted(*arguments: Any, name: str = name, original: Any = original) -> None:
            done.append(name)
            await original(*arguments)

        monkeypatch.setattr(kind, name, counted)

    await site.run()

    assert ["end"] == done


TWO = """advance = "auto"
worktree = "own"
[[task]]
id = "a"
prompt = "hang"
[[task]]
id = "b"
prompt = "hang"
"""


async def test_while_the_machine_is_busy_one_task_runs_and_no_further_one_starts(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await off(Site, env, TWO.replace('"own"', '"folder"'))
    busy = msgspec.structs.replace(CONFIG, plans=Plans(max_load=1.0))
    monkeypatch.setattr(os, "getloadavg", lambda: (1e6, 0.0, 0.0))

    async with site.runs(busy) as now:
        await auntil(lambda: now().of("a").state is TaskState.RUNNING)
        for _ in range(3):  # it looks after each of these what it may begin
            await off(site.book.record_decision, "pause")
            await auntil(lambda: now().state == "paused")
            await off(site.book.record_decision, "resume")
            await auntil(lambda: now().state == "running")
        assert TaskState.WAITING is now().of("b").state

        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        await auntil(lambda: now().of("b").state is TaskState.RUNNING)


async def test_an_agent_in_a_task_knows_its_peers_with_their_branches_and_changed_files(env: Env) -> None:
    repo = await off(Repo, env.folder / "work")
    async with (site := await off(Site, env, TWO)).runs() as now:
        await auntil(lambda: all(now().of(id_).state is TaskState.RUNNING for id_ in "ab"))
        own = now().of("a")
        await off((Path(own.workdir) / "new.py").write_text, "x = 1\n")
        await off(repo.commit, "done.py", "y = 1\n", Path(own.workdir))

        def peer() -> TaskPeer | None:
            known = context_of(site.paths, SessionId(now().of("b").session))
            seen = next((one for one in known.peer_sessions if one.task == 1), None) if known else None
            return seen if seen is not None and seen.files == ("done.py", "new.py") else None

        seen = await off(until, peer)
        assert (own.session, own.name, own.branch, "running") == (seen.id, seen.name, seen.branch, seen.task_state)


CLAIMS = TWO.replace("hang", "say done").replace('"own"', '"shared"').replace('"auto"', '"auto"\nlimit = 1')


async def test_a_claim_without_changes_is_reported_in_a_shared_worktree_too(env: Env) -> None:
    repo = await off(Repo, env.folder / "work")
    site = await off(Site, env, CLAIMS)
    asking = msgspec.structs.replace(CONFIG, plans=Plans(max_load=0, believe=False))
    async with site.runs(asking) as now:
        await auntil(lambda: all(now().of(id_).state is TaskState.CLAIMED for id_ in "ab"))
        assert [0, 0] == [now().of(id_).changed for id_ in "ab"]

        shared = Path(now().of("a").workdir)
        await off(repo.commit, "new.py", "x = 1\n", shared)
        await off(site.book.record_decision, "retry", "a")
        await auntil(lambda: now().of("a").attempt == 2 and now().of("a").state is TaskState.CLAIMED)
        assert now().of("a").changed == 0  # that was before it began


IN_TERMINAL = """advance = "auto"
worktree = "folder"
[[task]]
id = "a"
run = "touch began; until test -e go; do sleep 0.05; done"
check = "test -e go"
"""


def was_submitted(site: Site) -> bool:
    """Whether the host has logged that the task's command was taken: it is begun before that."""
    receipts = [receipt for session in read_fleet(site.paths).sessions for receipt in session.receipts]
    return [ReceiptState.SUBMITTED] == [receipt.state for receipt in receipts]


def kill_tmux_host(site: Site) -> int:
    """End the shared tmux host as a crash would; its pid."""
    pid = lock_holder(site.paths.tmux_host_lock)
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: lock_holder(site.paths.tmux_host_lock) != pid)
    return pid


@pytest.mark.parametrize("headless", [False, True])
async def test_a_killed_tmux_host_is_restarted_by_the_runner_alone(env: Env, headless: bool) -> None:
    """No dashboard is open, nor does anybody send a command."""
    async with (site := await off(partial(Site, env, IN_TERMINAL, headless=headless))).runs() as now:
        await auntil((site.folder / "began").exists)
        await off(until, lambda: was_submitted(site))
        before = await off(kill_tmux_host, site)
        await auntil(lambda: lock_holder(site.paths.tmux_host_lock) not in (None, before))
        await off((site.folder / "go").touch)
        await auntil(lambda: now().state == "ended", 40.0)

    assert ("done", "its check passed") == (now().outcome, now().of("a").why)
    assert 1 == now().of("a").attempt
