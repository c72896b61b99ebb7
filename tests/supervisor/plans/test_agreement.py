"""What a person agrees to, and which decisions make sense."""

from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import GitError, UsageError
from kasmon.model.plan.fact import Deed, PlanFact
from kasmon.supervisor.plans.agreement import grounds, refusal, shown
from tests.model.plan.plans import began, claimed, done, failed, plan, run, steered, task
from tests.supervisor.repo import Repo

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
    return shown(agents, CONFIG, Path("/p"))


def test_every_agent_is_shown_with_its_command_and_its_tasks() -> None:
    assert "Plan 'tidy': 4 tasks in 1 waves, in /p" == lines("cat", "", "cat")[0]
    assert "  starts 'cat' (/bin/cat --dangerous 'two words') for tasks t0, t2" == lines("cat", "", "cat")[1]
    assert lines("cat", "", "cat")[2].endswith(" -m kasmon.scripted) for task t1")


def test_every_command_and_check_is_shown_whole() -> None:
    said = lines()

    assert "  runs in the shell of task last: rm -rf build\nmake" in said
    assert "  checks task last by: make test" in said


def test_an_agent_that_cannot_start_is_shown_with_the_reason() -> None:
    assert any("'gone' (which cannot be started now: " in line for line in lines("gone"))


@pytest.mark.parametrize(
    ("deed", "id_", "facts", "why"),
    [
        ("pause", "", (steered("pause"),), "it is paused already"),
        ("accept", "a", (), "task 'a' is waiting, not claimed"),
        ("accept", "a", (began("a"),), "task 'a' is running, not claimed"),
        ("skip", "a", done("a"), "task 'a' is done already"),
        ("skip", "a", (steered("skip", "a"),), "task 'a' is skipped already"),
        ("retry", "a", (), "task 'a' has not begun"),
        ("replace", "a", (), "task 'a' has not begun"),
        ("replace", "b", failed("b"), "task 'b' is a command for a shell, not an agent's"),
        ("advance", "", (began("a"),), "wave 1 is not done"),
        ("advance", "", (*done("a"), *done("b"), steered("advance")), "wave 2 is its last one"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    deed: Deed, id_: str, facts: tuple[PlanFact, ...], why: str
) -> None:
    assert why == refusal(WAVES, run(*facts), deed, id_)


@pytest.mark.parametrize(
    ("deed", "id_", "facts"),
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
def test_whatever_makes_sense_is_not(deed: Deed, id_: str, facts: tuple[PlanFact, ...]) -> None:
    assert "" == refusal(WAVES, run(*facts), deed, id_)


def test_what_no_worktree_will_hold_is_said_before_it_is_agreed_to(repo: Repo) -> None:
    assert [] == grounds(WAVES, repo.folder)
    (repo.folder / "new").touch()

    assert [f"1 file of {str(repo.folder)!r} is not committed, so no worktree has them"] == grounds(WAVES, repo.folder)
    assert [] == grounds(plan(task("a"), worktree="folder"), repo.folder)


def test_a_worktree_that_nobody_can_make_is_refused_before_anything_runs(repo: Repo, tmp_path: Path) -> None:
    assert [] == grounds(WAVES, tmp_path)
    with pytest.raises(UsageError, match="task 'a' wants a worktree"):
        grounds(plan(task("a", worktree="own")), tmp_path)
    with pytest.raises(GitError, match="has no commit yet"):
        grounds(WAVES, Repo(tmp_path / "new", commits=0).folder)
