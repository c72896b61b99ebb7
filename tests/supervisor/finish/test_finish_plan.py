"""What a plan refuses before anything is done."""

import time
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import RefusedError
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree
from kasmon.supervisor.worktrees.setup import prepare_worktree
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session


def test_a_plan_warns_of_a_nested_repository_and_names_the_hooks_of_every_change(repo: Repo, paths: Paths) -> None:
    with new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, "fix") as (tree, _):
        Repo(Path(tree.path) / "vendor" / "lib")
    for name in ("reference-transaction", "post-index-change", "pre-push"):
        hook = repo.folder / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
    fix = session("fix", worktree=tree, workdir=tree.path)

    plan = plan_finish(paths, fix, FinishRequest(commits=True), Fleet(at=time.time()))

    assert ("reference-transaction", "post-index-change") == plan.steps[0].hooks
    assert ("the commit would contain only a link to each repository in the worktree: 'vendor/lib/'",) == plan.warnings


def test_a_link_to_the_checkout_that_git_does_not_ignore_is_not_committed(repo: Repo, paths: Paths) -> None:
    repo.commit(".gitignore", "modules/\n")
    (repo.folder / "modules").mkdir()
    with new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, "fix") as (tree, _):
        prepare_worktree(WorktreeConfig(link=("modules",)), repo.folder, Path(tree.path), print)
    fix = session("fix", worktree=tree, workdir=tree.path)

    with pytest.raises(RefusedError, match="links to your checkout, which git does not ignore: 1 file: 'modules'"):
        plan_finish(paths, fix, FinishRequest(commits=True), Fleet(at=time.time()))

    repo.commit(".gitignore", "modules\n", at=Path(tree.path))
    assert plan_finish(paths, fix, FinishRequest(commits=True), Fleet(at=time.time())).digest


@pytest.mark.parametrize(
    ("request_", "stays"),
    [
        (FinishRequest(commits=True, update="rebase", fetches=True), True),
        (FinishRequest(commits=True, pushes=True), False),
        (FinishRequest(commits=True, proposes=True), False),
        (FinishRequest(commits=True, merge="ff"), False),
        (FinishRequest(commits=True, takes_over=True), False),
        (FinishRequest(discards=True), False),
    ],
)
def test_a_request_stays_on_the_branch_if_it_commits_and_updates_only(request_: FinishRequest, stays: bool) -> None:
    assert stays is request_.stays_on_branch
