"""The finish screen over a real repository, on a terminal."""

from pathlib import Path

from tests.support.git_repo import Repo
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until


def test_a_branch_is_committed_and_merged_by_keys() -> None:
    with Home() as home:
        (home.path / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
        repo = Repo(home.path / "shop")
        session = home.session(home.start("fix", workdir=str(repo.folder), worktree=True))
        assert session.worktree is not None
        tree = Path(session.worktree.path)
        (tree / "new.txt").write_text("new\n")
        with Dashboard(home) as dashboard:
            dashboard.shows("fix", "±1")
            dashboard.type("F")
            dashboard.shows("1 change, not committed")
            dashboard.type("c")
            dashboard.shows("Commit all changes", "review")
            dashboard.type("!\r")
            dashboard.shows("Commit 1 change as 'fix!'.")
            confirm(dashboard, "Committed")
            dashboard.shows("1 commit, not in main")
            dashboard.type("m")
            dashboard.shows("Merge into the base")
            dashboard.type("\r")
            dashboard.shows("Merge kasmon/fix into main")
            confirm(dashboard, "Merged")

        assert "fix!" == repo.git("log", "-1", "--format=%s", at=tree)
        assert (repo.folder / "new.txt").exists()
        assert "Ann" == repo.git("log", "-1", "--format=%an", "main")


def test_branches_that_overlap_are_merged_and_one_that_conflicts_is_left_out() -> None:
    with Home() as home:
        (home.path / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
        repo = Repo(home.path / "shop")
        trees = []
        for name in ("fix", "docs"):
            session = home.session(home.start(name, workdir=str(repo.folder), worktree=True))
            assert session.worktree is not None
            trees.append(Path(session.worktree.path))
            repo.commit("file0.txt", f"{name}\n", at=trees[-1])
        with Dashboard(home) as dashboard:
            dashboard.shows("fix ⇄", "docs ⇄")
            dashboard.type("F")
            dashboard.shows("M overlap")
            dashboard.type("M")
            dashboard.shows("2 branches into main", "conflict in 'file0.txt'")
            confirm(dashboard, "leave it out")
            dashboard.type("\x1b[C")
            dashboard.type("\r")
            dashboard.shows("merged 1 of 2 branches.", "left out.")

        assert "2" == repo.git("rev-list", "--count", "--no-merges", "main")
        assert ["", ""] == [repo.git("status", "--porcelain", at=tree) for tree in trees]


def confirm(dashboard: Dashboard, outcome: str) -> None:
    """Press `y` until *outcome* is shown: a yes that comes too early does not count."""

    def is_shown() -> bool:
        if outcome not in dashboard.screen:
            dashboard.type("y")
        return outcome in dashboard.screen

    until(is_shown)
