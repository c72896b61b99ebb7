"""The branches of a plan's tasks, in the order in which they are merged."""

from pathlib import Path

import pytest

from kasmon.errors import RefusedError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import PlanRun, TaskRun
from kasmon.model.session import Session
from kasmon.supervisor.finish.merge_plan import find_plan_branches, plan_merges
from kasmon.supervisor.worktrees.worktree import create
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env


def test_each_branch_of_a_plan_is_merged_once_with_the_checks_of_its_tasks(
    env: Env, repo: Repo, tmp_path: Path
) -> None:
    worktrees = {name: create(repo.folder, tmp_path / "trees" / name, f"plan/{name}").path for name in ("own", "both")}
    for name, path in worktrees.items():
        repo.commit(f"{name}.txt", at=Path(path))
    works_in = (("lexer", "own", "check a"), ("parser", "both", "check b"), ("docs", "both", "check c"))
    tasks = tuple(Task(id=id_, number=number, check=check) for number, (id_, _, check) in enumerate(works_in, 1))
    run = PlanRun(
        plan="p1",
        folder=str(repo.folder),
        tasks={
            id_: TaskRun(session=id_, branch=f"plan/{tree}", workdir=str(worktrees[tree]), base=repo.head)
            for id_, tree, _ in works_in
        },
    )
    fleet = Fleet(sessions=tuple(Session(id=SessionId(id_), name=id_, plan="p1") for id_, _, _ in works_in))

    sessions, checks = find_plan_branches(run, Plan(name="p", tasks=tasks), fleet)
    planned = plan_merges(env.paths, sessions, "merge", "", checks, fleet=fleet)

    assert [("lexer", "plan/own", "check a"), ("parser", "plan/both", "(check b) && (check c)")] == [
        (step.name, step.branch, step.check) for step in planned.steps
    ]
    assert ("main", repo.head) == (planned.base_name, planned.base)


def test_a_plan_without_branches_is_refused(repo: Repo) -> None:
    with pytest.raises(RefusedError, match="no task of plan 'p1' has a branch"):
        find_plan_branches(PlanRun(plan="p1", folder=str(repo.folder)), Plan(name="p", tasks=()), Fleet())
