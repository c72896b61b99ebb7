"""Finishing branches of one repository from several processes at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import KasmonError
from kasmon.host.rpc.event_loop import run
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths
from kasmon.supervisor.finish.finish import finish
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session


def test_one_of_two_simultaneous_merges_is_done_and_the_other_changes_nothing(repo: Repo, paths: Paths) -> None:
    repo.git("config", "user.name", "Ann")
    repo.git("config", "user.email", "ann@example.org")
    with new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, "fix") as (tree, _):
        repo.commit("a.txt", at=Path(tree.path))
    fix = session("fix", worktree=tree, workdir=tree.path)
    plan = plan_finish(paths, fix, FinishRequest(merge="merge"), Fleet(at=time.time()))

    def finish_it(_: int) -> bool:
        try:
            run(finish(paths, fix, plan, lambda text: None))
        except KasmonError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        done = sum(pool.map(finish_it, range(4)))

    assert (1, "", "3") == (done, repo.git("status", "--porcelain"), repo.git("rev-list", "--count", "HEAD"))
