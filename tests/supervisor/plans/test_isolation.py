"""A task that has a worktree never runs in the person's own checkout: real runners, real shells, real git."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kasmon.errors import RefusedError
from kasmon.host.rpc.frames import (
    CommandResult,
    DescribePane,
    ExecuteCommand,
    Frame,
    FromClient,
    Hello,
    PaneDescription,
)
from kasmon.host.rpc.server import ClientConnection, HostServer
from kasmon.launch import base_environment
from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import LogOpened
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PlanFact, TaskBegan, TaskClaimed, TaskDone, TaskFailed
from kasmon.model.plan.plan import GIT_LOCAL
from kasmon.model.plan.progress import TaskState
from kasmon.model.plan.scheduler import (
    CheckTask,
    ClaimTask,
    EndTaskSession,
    StartAttemptSession,
    StartNextAttempt,
    next_steps,
)
from kasmon.model.plan.task_outcome import TaskOutcome
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.repository.git import git
from kasmon.supervisor.plans import approval
from kasmon.supervisor.plans.recover import InterruptedPlan, recover
from kasmon.supervisor.plans.task_actions import TaskActions
from kasmon.supervisor.plans.task_folder import TaskFolders, own_name
from kasmon.supervisor.plans.task_session import TaskStarter
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.move import move
from kasmon.supervisor.worktrees.worktree import create
from tests.supervisor.plans.test_runner import CONFIG, Site
from tests.support.git_repo import Repo
from tests.support.sample_plans import session as session_of
from tests.support.supervisor.env import Env, ended, started
from tests.support.wait import auntil, until

pytestmark = pytest.mark.story

off = asyncio.to_thread
"""git and the log block; the runner under test needs the loop."""

HARM = "rm -f precious.txt && git rm -q file0.txt && git -c user.name=t -c user.email=t commit -qm harm"
"""What must happen in a worktree only."""


class Checkout:
    """A person's own repository, with work in it that is saved nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.repo = Repo(folder)
        self.folder = folder
        (folder / "precious.txt").write_text("only here\n")
        (folder / "staged.txt").write_text("staged\n")
        self.repo.git("add", "staged.txt")
        (folder / "file0.txt").write_text("changed, and not committed\n")

    def state(self) -> tuple[dict[str, bytes], str, str]:
        """Its working files, its index and its HEAD, with the branch and the commit of that."""
        files = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and ".git" not in path.relative_to(self.folder).parts
        }
        head = f"{(self.folder / '.git' / 'HEAD').read_text()}{self.repo.head}"
        return files, self.repo.git("ls-files", "--stage"), head


@pytest.fixture
def checkout(env: Env) -> Iterator[Checkout]:
    checkout = Checkout(env.folder / "work")
    before = checkout.state()
    yield checkout
    assert before == checkout.state()


def unfinished(site: Site, session: SessionId) -> list[Receipt]:
    known = site.fleet().get(session)
    return [] if known is None else [one for one in known.receipts if one.state is not ReceiptState.FINISHED]


def site_of(env: Env, *tasks: str) -> Site:
    return Site(env, "\n".join(('advance = "auto"', 'worktree = "own"', *(f"[[task]]\n{task}" for task in tasks))))


async def test_no_attempt_runs_in_the_checkout_if_its_branch_is_taken(env: Env, checkout: Checkout) -> None:
    checkout.repo.git("branch", "plan/tidy.1-a")
    site = await off(site_of, env, f'id = "a"\nretries = 1\nrun = "{HARM}"')

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED and now().of("a").attempt == 2)

    assert 2 == len(now().of("a").failures)
    assert all("the branch 'plan/tidy.1-a' already exists" in why for why in now().of("a").failures)
    assert "" == now().of("a").workdir


async def test_a_retry_fails_if_the_worktree_was_deleted_by_hand_and_gives_a_next_step(
    env: Env, checkout: Checkout
) -> None:
    site = await off(site_of, env, f'id = "a"\nrun = "{HARM}; false"')

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED)
        assert "plan/tidy.1-a" == now().of("a").branch
        await off(shutil.rmtree, now().of("a").workdir)
        await off(site.book.record_decision, "retry", "a")
        await auntil(lambda: now().of("a").state is TaskState.FAILED and now().of("a").attempt == 2)
        why = now().of("a").why
        assert "is gone, but its branch 'plan/tidy.1-a' still exists" in why

        await off(checkout.repo.git, *why.partition("`git ")[2].partition("`")[0].split())
        await off(site.book.record_decision, "retry", "a")
        await auntil(lambda: now().of("a").attempt == 3 and now().of("a").session != "")

    assert "plan/tidy.1-a" == now().of("a").branch


async def test_a_task_that_continues_from_a_skipped_one_gets_its_worktree(env: Env, checkout: Checkout) -> None:
    site = await off(site_of, env, 'id = "a"\nrun = "true"', f'id = "c"\ninherits = "a"\nrun = "{HARM}"')
    await off(site.book.record_decision, "skip", "a")

    assert "claimed" == (await site.run()).outcome

    at = site.book.run.of("c")
    assert (str(site.book.folder / "trees" / "tidy.1-a"), "plan/tidy.1-a") == (at.workdir, at.branch)
    assert not (Path(at.workdir) / "file0.txt").exists()


async def test_a_command_is_not_typed_into_a_terminal_that_the_command_before_left_in_the_checkout(
    env: Env, checkout: Checkout
) -> None:
    cd = f"cd '{checkout.folder}'"
    site = await off(site_of, env, f'id = "a"\nrun = "{cd}"', f'id = "b"\ninherits = "a"\nrun = "{HARM}"')

    async with site.runs() as now:
        await auntil(lambda: now().of("b").state is TaskState.FAILED)

    where = f"the terminal of task 'a' is in {str(checkout.folder)!r}, not in its worktree"
    assert now().of("b").why.startswith(where)


async def test_a_command_is_not_typed_into_a_terminal_that_the_user_moved_to_the_checkout(
    env: Env, checkout: Checkout
) -> None:
    site = await off(
        site_of,
        env,
        'id = "a"\nrun = "true"',
        'id = "gate"\nprompt = "hang"',
        f'id = "b"\ninherits = "a"\nneeds = ["gate"]\nrun = "{HARM}"',
    )

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.DONE)
        session = (await off(site.fleet)).get(SessionId(now().of("a").session))
        assert session is not None
        await session_operations.send(site.paths, session, f"cd '{checkout.folder / '.git'}'")
        await off(until, lambda: not unfinished(site, session.id))
        await off(site.book.record_decision, "skip", "gate")
        await auntil(lambda: now().of("b").state is TaskState.FAILED)

    assert "not in its worktree" in now().of("b").why


async def test_a_command_is_typed_into_a_terminal_in_the_worktree_or_outside_of_the_repository(
    env: Env, checkout: Checkout
) -> None:
    site = await off(
        site_of,
        env,
        'id = "a"\nrun = "mkdir src && cd src"',
        f'id = "b"\ninherits = "a"\nrun = "cd {env.folder}"',
        'id = "c"\ninherits = "b"\nrun = "touch outside"',
    )

    assert "claimed" == (await site.run()).outcome

    assert (env.folder / "outside").exists()


async def test_a_check_does_not_get_the_variables_that_lead_git_elsewhere(
    env: Env, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = 'git rm -q --cached file0.txt && test \\"$GIT_AUTHOR_NAME\\" = t'
    site = await off(site_of, env, f'id = "a"\nrun = "true"\ncheck = "{check}"')

    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", str(checkout.folder / ".git"))
        patch.setenv("GIT_INDEX_FILE", str(checkout.folder / ".git" / "index"))
        patch.setenv("GIT_AUTHOR_NAME", "t")
        assert "done" == (await site.run()).outcome

    assert "file0.txt" not in await off(checkout.repo.git, "ls-files", at=Path(site.book.run.of("a").workdir))


def test_the_variables_that_lead_git_elsewhere_are_those_that_git_lists() -> None:
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)

    assert set() == set(listed.stdout.split()) - GIT_LOCAL


# What goes on in a worktree


def begun(site: Site, *facts: PlanFact, session: str = "s") -> Path:
    """The first attempt of task a has begun in its worktree, by the log; its worktree."""
    tree = create(site.folder, site.book.folder / "trees" / "tidy.1-a", "plan/tidy.1-a")
    noted = TaskBegan(
        at=time.time(), task="a", attempt=1, session=session, workdir=tree.path, branch=tree.branch, base=tree.base
    )
    for fact in (noted, *facts):
        site.book.note(fact)
    return Path(tree.path)


async def test_a_logged_session_is_not_started_if_its_worktree_is_gone(env: Env, checkout: Checkout) -> None:
    """The runner before died between the two."""
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"')
    tree = await off(begun, site, session=await off(site.session))
    await off(shutil.rmtree, tree)

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED)

    assert "is gone, but its branch 'plan/tidy.1-a' still exists" in now().of("a").why
    assert [0] == [session.generation for session in (await off(site.fleet)).sessions]


async def test_a_check_is_not_run_where_a_link_leads_from_its_worktree_into_the_checkout(
    env: Env, checkout: Checkout
) -> None:
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"\ncheck = "rm -f precious.txt"')
    tree = await off(begun, site, TaskClaimed(at=time.time(), task="a", attempt=1, by="said"))
    await off(shutil.rmtree, tree)
    await off(tree.symlink_to, checkout.folder)

    async with site.runs() as now:
        await auntil(lambda: now().of("a").state is TaskState.FAILED)

    assert now().of("a").why.startswith("its check failed: could not be run: ")


async def test_an_agent_is_not_resumed_if_its_worktree_is_gone(env: Env, checkout: Checkout) -> None:
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"')
    await off(shutil.rmtree, await off(begun, site, session="sa"))
    lost = session_of("a", resume_id="r")

    with pytest.raises(RefusedError, match="is not a worktree"):
        await recover(site.paths, InterruptedPlan("tidy", "resume", "a", 1, lost, "r"))

    await off(site.book.more)
    assert "its session did not come back: " in site.book.run.of("a").why


@pytest.mark.parametrize("happens", [shutil.rmtree, lambda tree: (tree / ".git").unlink()])
async def test_the_user_cannot_restart_or_move_a_session_whose_worktree_is_gone(
    env: Env, checkout: Checkout, happens: Callable[[Path], object]
) -> None:
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"')
    await off(happens, await off(begun, site, session="sa"))
    ended = session_of("a", SessionState.ENDED, resume_id="r")

    with pytest.raises(RefusedError, match="is not a worktree"):
        await session_operations.restart(site.paths, ended)
    with pytest.raises(RefusedError, match="is not a worktree"):
        await move(site.paths, CONFIG, ended, Mode.TMUX)


async def test_the_user_cannot_restart_a_session_of_a_task_that_was_removed_from_the_plan(
    env: Env, checkout: Checkout
) -> None:
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"')
    await off(begun, site)

    with pytest.raises(RefusedError, match="to none of its tasks now"):
        await session_operations.restart(site.paths, session_of("other", resume_id="r"))


async def test_files_made_in_a_sandbox_are_not_copied_through_a_link(env: Env, checkout: Checkout) -> None:
    site = await off(site_of, env, 'id = "a"\nprompt = "say hello"')
    tree = await off(begun, site)
    await off(shutil.rmtree, tree)
    await off(tree.symlink_to, checkout.folder)
    await off(lambda: site.paths.sandbox("s").mkdir(parents=True))
    deeds = TaskActions(site.paths, site.book, CONFIG, TaskFolders(site.paths, "tidy", site.folder))

    await deeds.claim(site.plan, ClaimTask(site.plan.task("a"), 1, TaskOutcome("said", "did it")))

    assert "Its changes in the sandbox were not fetched: " in site.book.run.of("a").why


# In any order

TASKS = """advance = "auto"
without_check = "advance"
worktree = "own"
[[task]]
id = "a"
prompt = "say a"
[[task]]
id = "b"
inherits = "a"
prompt = "say b"
[[task]]
id = "c"
retries = 1
prompt = "say c"
check = "HARM"
[[task]]
id = "d"
worktree = "shared"
prompt = "say d"
[[task]]
id = "e"
inherits = "d"
prompt = "say e"
[[task]]
id = "f"
run = "HARM"
[[task]]
id = "g"
inherits = "f"
run = "HARM"
""".replace("HARM", HARM)
DECISIONS = ("skip", "retry")
ENDS = ("done", "failed", "claimed")
RUNS = started(mode=Mode.TMUX)
HAPPENINGS = ("delete", "forget", "unlink", "branch", "switch", "link", "empty", "wander")
Step = tuple[str, str]


class KilledError(Exception):
    """The runner was killed."""


class Terminals:
    """A tmux host whose shells do harm in their folder as soon as a command is typed into them."""

    def __init__(self, paths: Paths, harm: Callable[[str], None]) -> None:
        self.folders: dict[SessionId, str] = {}
        self._harm = harm
        self._server = HostServer(paths.tmux_host_socket, self._receive, lambda connection: None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _receive(self, connection: ClientConnection, frame: FromClient) -> Awaitable[Frame] | None:
        return None if isinstance(frame, Hello) else off(self._answer, frame)

    def _answer(self, frame: FromClient) -> Frame:
        if isinstance(frame, DescribePane):
            where = self.folders[frame.session]
            return PaneDescription(
                n=frame.n, width=80, height=24, cursor=(0, 0), title="", cwd=where, window="@1", clients=0, attach=()
            )
        assert isinstance(frame, ExecuteCommand)
        self._harm(self.folders[frame.session])
        typed = Receipt(id=ReceiptId("r1"), session=frame.session, state=ReceiptState.SUBMITTED, at=time.time())
        return CommandResult(n=frame.n, receipt=typed)


class Harm:
    """A plan that is run step by step; its agents, commands and checks do harm wherever they are started."""

    def __init__(self, env: Env, checkout: Checkout) -> None:
        self.site, self.checkout = Site(env, TASKS), checkout
        self.terminals = Terminals(self.site.paths, self.harm)
        self.is_dying = False
        self.started: list[str] = []
        self.is_new()

    def is_new(self) -> None:
        """Another runner has begun."""
        paths, book = self.site.paths, self.site.book
        grounds = TaskFolders(paths, book.plan, self.site.folder)
        self.starter = TaskStarter(paths, CONFIG, book, grounds, self.begin_session)
        self.actions = TaskActions(paths, book, CONFIG, grounds)

    async def begin_session(self, paths: Paths, launch: Launch) -> None:
        if self.is_dying:
            raise KilledError
        if launch.mode is Mode.TMUX:
            self.terminals.folders[launch.session] = launch.workdir
            await off(self.site.env.tells, launch.session, LogOpened(at=time.time(), session=launch.session), RUNS)
        await off(self.harm, launch.workdir)

    def harm(self, folder: str) -> None:
        self.started.append(folder)
        variables = base_environment(dict(os.environ))
        subprocess.run(["sh", "-c", HARM], cwd=folder, env=variables, capture_output=True, check=False)

    def do(self, what: str, task: str) -> None:
        plan, book = self.site.plan, self.site.book
        run = book.run
        if what == "kill":
            self.is_dying = True
            with contextlib.suppress(KilledError):
                self.go_on()
            self.is_dying = False
            self.is_new()
        elif what == "go on":
            self.go_on()
        elif what in DECISIONS and not approval.refusal(plan, run, what, task):  # type: ignore[arg-type]  # one of its words
            book.record_decision(what, task)  # type: ignore[arg-type]  # the same
            book.more()
        elif what in ENDS and run.of(task).state is TaskState.RUNNING:
            at, number = time.time(), run.of(task).attempt
            facts: dict[str, PlanFact] = {
                "done": TaskDone(at=at, task=task, attempt=number, why=what),
                "failed": TaskFailed(at=at, task=task, attempt=number, why=what),
                "claimed": TaskClaimed(at=at, task=task, attempt=number, by="turn"),
            }
            book.note(facts[what])
        elif what in HAPPENINGS:
            self.happen(what, task)

    def go_on(self) -> None:
        """Whatever the runner would begin now."""
        run, fleet = self.site.book.run, self.site.fleet()
        sessions = {str(session.id): session for session in fleet.sessions}
        for step in next_steps(self.site.plan, run, sessions, 9, time.time()).steps:
            now = self.site.book.run
            if isinstance(step, StartNextAttempt):
                asyncio.run(self.starter.attempt(self.site.plan, now, step.task, step.attempt, fleet))
            elif isinstance(step, StartAttemptSession):
                asyncio.run(self.starter.start(self.site.plan, now, step.task, step.attempt, step.session))
            elif isinstance(step, CheckTask):
                asyncio.run(self.actions.check(self.site.plan, step.task, step.attempt))
            elif isinstance(step, EndTaskSession):
                self.site.env.tells(step.session, ended())

    def happen(self, what: str, task: str) -> None:
        """What a person, or an agent, does to the worktree of *task*."""
        own = f"tidy.{own_name(self.site.plan.task(task))}"
        tree = self.site.book.folder / "trees" / ("shared" if task == "d" else own)
        repo = self.checkout.folder
        if what == "wander":
            self.terminals.folders |= dict.fromkeys(self.terminals.folders, str(repo))
        elif what == "branch":
            git(repo, "branch", "plan/tidy" if task == "d" else f"plan/{own}", fails=True)
        elif what == "forget":
            git(repo, "worktree", "prune")
        elif tree.is_dir() and not tree.is_symlink():
            if what == "switch":
                git(tree, "switch", "--quiet", "--detach", fails=True)
            elif what == "unlink":
                (tree / ".git").unlink(missing_ok=True)
            else:
                shutil.rmtree(tree)
                tree.mkdir() if what == "empty" else None
                tree.symlink_to(repo) if what == "link" else None


def sequence(text: str) -> Sequence[Step]:
    """`go on, skip a` as steps."""
    return [(what, task) for what, _, task in (step.rpartition(" ") for step in text.split(", "))]


STEPS = st.tuples(
    st.sampled_from(("go on", "go on", "go on", "kill", *ENDS, *DECISIONS, *HAPPENINGS)), st.sampled_from("abcdefg")
)


@settings(max_examples=settings().max_examples // 20)
@given(st.lists(STEPS, min_size=4, max_size=10))
@example(sequence("branch c, go on c, retry c, go on c"))
@example(sequence("go on a, failed c, delete c, retry c, go on c, retry c, go on c"))
@example(sequence("skip a, go on b, kill b, skip d, go on e"))
@example(sequence("kill a, link a, link d, go on a, retry a, go on a"))
@example(
    sequence("go on a, done a, done d, go on b, unlink a, delete d, forget d, failed b, failed e, retry b, go on e")
)
@example(sequence("go on f, done f, wander f, go on g, retry g, go on g"))
@example(sequence("go on f, done f, kill g, wander f, go on g"))
@example(sequence("go on c, claimed c, go on c, retry c, go on c, claimed c, link c, go on c"))
def test_no_order_of_decisions_deletions_and_kills_changes_the_checkout(steps: Sequence[Step]) -> None:
    env = Env()
    checkout = Checkout(env.folder / "work")
    before = checkout.state()
    harm = Harm(env, checkout)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as ends:
        ends.callback(env.close)
        ends.callback(harm.terminals.close)
        patch.setenv("GIT_DIR", str(checkout.folder / ".git"))
        patch.setenv("GIT_INDEX_FILE", str(checkout.folder / ".git" / "index"))
        for what, task in steps:
            harm.do(what, task)
            assert before == checkout.state()
            assert all(Path(folder).parent == harm.site.book.folder / "trees" for folder in harm.started)
        harm.do("go on", "a")
        assert before == checkout.state()
