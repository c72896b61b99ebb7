"""What a person agrees to, and which decisions make sense."""

import sys
from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import GitError, RefusedError, UsageError
from kasmon.model.plan.events import PlanAction, PlanFact
from kasmon.model.plan.machine_choice import MachineChoice
from kasmon.model.plan.plan import Plan
from kasmon.supervisor.plans.approval import check_repository, describe_plan, refusal
from tests.support.git_repo import Repo
from tests.support.sample_plans import began, claimed, done, failed, plan, run, steered, task

CONFIG = Config(
    agents={
        "scripted": Profile(program="scripted"),
        "cat": Profile(program="/bin/cat", flags=("--dangerous 'two words'",)),
        "gone": Profile(program="no-such-agent"),
        "shell": Profile(program="/bin/sh"),
    },
    default_agent="scripted",
)
WAVES = plan(task("a", wave=1), task("b", wave=1, run="make"), task("c", wave=2))


def lines(*tasks: str) -> list[str]:
    agents = plan(
        *(task(f"t{n}", agent=agent) for n, agent in enumerate(tasks)),
        task("last", run="rm -rf build\nmake", check="make test"),
    )
    return describe_plan(agents, CONFIG, Path("/p"))


def test_every_agent_is_shown_with_its_command_and_tasks_and_every_command_and_check_whole() -> None:
    assert "Plan 'tidy': 4 tasks in 1 waves, in /p" == lines("cat", "", "cat")[0]
    assert "  starts 'cat' (/bin/cat --dangerous 'two words') for tasks t0, t2" == lines("cat", "", "cat")[1]
    assert lines("cat", "", "cat")[2].endswith(" -m kasmon.scripted) for task t1")

    said = lines()
    assert "  runs in the shell of task last: rm -rf build\nmake" in said
    assert "  checks task last by: make test" in said


def test_an_agent_that_cannot_start_is_shown_with_the_reason() -> None:
    assert any("'gone' (which cannot be started now: " in line for line in lines("gone"))


def test_the_machine_that_each_task_would_get_now_is_shown() -> None:
    elsewhere = plan(
        task("a", machine="gpu-1", check="make test"), task("b", labels=("gpu", "linux")), task("c", machine="any"),
        task("d", inherits="b"), task("e"),
    )  # fmt: skip
    choices = {"a": MachineChoice("gpu-1", "free"), "b": MachineChoice("lab", "free"), "c": MachineChoice("", "full")}
    choices["d"] = choices["b"]

    assert [
        "  starts 'scripted', as the config of its machine has it, for tasks a, b, c, d",
        f"  starts 'scripted' ({sys.executable} -P -m kasmon.scripted) if task c runs here",
        "  runs task a on gpu-1: now on gpu-1",
        "  runs tasks b, d on any machine with gpu, linux: now on lab",
        "  runs task c on any machine: on none now (full)",
        "  there, their agents, commands and checks run with your account, in a git worktree",
        "  runs at most 8 tasks on each machine",
        "  checks task a by: make test",
    ] == describe_plan(elsewhere, CONFIG, Path("/p"), choices)[2:]
    assert "  runs task c on any machine" in describe_plan(elsewhere, CONFIG, Path("/p"))


@pytest.mark.parametrize(
    ("decision", "id_", "facts", "why"),
    [
        ("pause", "", (steered("pause"),), "it is already paused"),
        ("accept", "a", (), "task 'a' is waiting, not reported as done"),
        ("accept", "a", (began("a"),), "task 'a' is running, not reported as done"),
        ("skip", "a", done("a"), "task 'a' is already done"),
        ("skip", "a", (steered("skip", "a"),), "task 'a' is already skipped"),
        ("retry", "a", (), "task 'a' has not started"),
        ("replace", "a", (), "task 'a' has not started"),
        ("replace", "b", failed("b"), "task 'b' is a shell command and has no agent"),
        ("advance", "", (began("a"),), "wave 1 is not done"),
        ("advance", "", (*done("a"), *done("b"), steered("advance")), "wave 2 is the last one"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_reason(
    decision: PlanAction, id_: str, facts: tuple[PlanFact, ...], why: str
) -> None:
    assert why == refusal(WAVES, run(*facts), decision, id_)


@pytest.mark.parametrize(
    ("decision", "id_", "facts"),
    [
        ("pause", "", ()),
        ("resume", "", ()),
        ("abort", "", ()),
        ("skip", "a", ()),
        ("skip", "a", failed("a")),
        ("retry", "a", done("a")),
        ("retry", "b", failed("b")),
        ("replace", "a", (began("a"),)),
        ("accept", "a", (began("a"), claimed("a"))),
        ("advance", "", (*done("a"), *done("b"))),
    ],
)
def test_a_valid_plan_is_accepted(decision: PlanAction, id_: str, facts: tuple[PlanFact, ...]) -> None:
    assert "" == refusal(WAVES, run(*facts), decision, id_)


def test_files_missing_in_a_worktree_are_shown_before_the_consent(repo: Repo) -> None:
    assert [] == check_repository(WAVES, repo.folder, "tidy")
    (repo.folder / "new").touch()

    assert [
        f"1 file of {str(repo.folder)!r} is not committed and will be missing from the worktrees"
    ] == check_repository(WAVES, repo.folder, "tidy")
    assert [] == check_repository(plan(task("a"), worktree="folder"), repo.folder, "tidy")


def test_an_impossible_worktree_is_refused_before_anything_runs(repo: Repo, tmp_path: Path) -> None:
    assert [] == check_repository(WAVES, tmp_path, "tidy")
    with pytest.raises(UsageError, match="task 'a' requires a worktree"):
        check_repository(plan(task("a", worktree="own")), tmp_path, "tidy")
    with pytest.raises(GitError, match="has no commit yet"):
        check_repository(WAVES, Repo(tmp_path / "new", commits=0).folder, "tidy")


def test_a_task_without_its_own_worktree_that_needs_the_branch_of_another_is_remarked(repo: Repo) -> None:
    of = plan(
        task("a"),
        task("b", worktree="shared", needs=("a",)),
        task("c", worktree="folder", needs=("a", "b")),
        task("d", needs=("a", "b")),
        task("e", needs=("a",), inherits="b"),
        worktree="own",
    )

    without = 'without the work of task a (worktree = "own")'
    assert [
        f"task b works in the shared worktree, {without}",
        f"task c works in the plan's folder, {without}",
        f"task e works in the shared worktree, {without}",
    ] == check_repository(of, repo.folder, "tidy")


OWN = plan(task("a"), task("b", inherits="a"), task("c", worktree="shared"), worktree="own")


@pytest.mark.parametrize(
    ("branch", "why"),
    [
        ("plan/tidy.1-a", "the branch 'plan/tidy.1-a' already exists"),
        ("plan/tidy", "the branch 'plan/tidy' already exists"),
        ("plan", "the branch 'plan' already exists in .*, and git cannot create 'plan/tidy.1-a' next to it"),
        ("plan/tidy/x", "the branch 'plan/tidy/x' already exists in .*, and git cannot create 'plan/tidy' next to it"),
    ],
)
def test_a_branch_that_conflicts_with_one_of_the_plans_is_refused(repo: Repo, branch: str, why: str) -> None:
    for free in ("plan-tidy", "planned", "tidy", *(("plan/tidy-2", "plan/tidy.2-b") if branch != "plan" else ())):
        repo.git("branch", free)
    assert [] == check_repository(OWN, repo.folder, "tidy")
    repo.git("branch", branch)

    with pytest.raises(RefusedError, match=why):
        check_repository(OWN, repo.folder, "tidy")
    assert [] == check_repository(plan(task("a"), worktree="folder"), repo.folder, "tidy")


def test_a_branch_that_the_running_plan_made_is_no_collision(repo: Repo) -> None:
    repo.git("branch", "plan/tidy.1-a")

    assert [] == check_repository(OWN, repo.folder, "tidy", run(began("a", branch="plan/tidy.1-a")))


def test_a_base_that_names_no_commit_is_refused_unless_it_is_a_branch_of_the_plan(repo: Repo) -> None:
    def based(base: str) -> Plan:
        return plan(task("a"), task("b", needs=("a",), base=base), worktree="own")

    for base in ("main", "needs", "plan/tidy.1-a", repo.head):
        assert [] == check_repository(based(base), repo.folder, "tidy")
    with pytest.raises(UsageError, match="the base 'develop' names no commit"):
        check_repository(based("develop"), repo.folder, "tidy")


def test_a_task_for_another_machine_needs_a_repository_with_its_history(repo: Repo, tmp_path: Path) -> None:
    elsewhere = plan(task("a", machine="gpu-1"))
    with pytest.raises(UsageError, match=r"'a' requires a worktree, but .* is not in a git repository") as told:
        check_repository(elsewhere, tmp_path / "..", "tidy")
    assert 'run it here with `machine = "local"`' in told.value.hint
    repo.commit("second.txt")
    repo.git("clone", "--quiet", "--depth=1", f"file://{repo.folder}", str(tmp_path / "shallow"))

    with pytest.raises(RefusedError, match=r"'a' cannot run on another machine: .* is a shallow clone") as refused:
        check_repository(elsewhere, tmp_path / "shallow", "tidy")

    assert "git fetch --unshallow" in refused.value.hint
    assert [] == check_repository(elsewhere, repo.folder, "tidy")
    assert [] == check_repository(plan(task("a")), tmp_path / "shallow", "tidy")
