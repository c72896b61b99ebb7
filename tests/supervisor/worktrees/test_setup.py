"""The preparation of a new worktree: files that are copied or linked, and a command with a time limit."""

from pathlib import Path

import psutil
import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import LaunchError, RefusedError, UsageError
from kasmon.supervisor.worktrees.setup import prepare_worktree, run_command
from tests.support.git_repo import Repo
from tests.support.wait import until


def prepare(source: Path, top: Path, **settings: object) -> list[str]:
    """Prepare the worktree at *top*; return what its setup printed."""
    printed: list[str] = []
    prepare_worktree(WorktreeConfig(**settings), source, top, printed.append)  # type: ignore[arg-type]  # settings by name
    return printed


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_files_are_copied_or_linked_and_existing_files_stay(repo: Repo, tree: Path) -> None:
    for name in (".env", "certs/a.pem", "certs/b.pem", "node_modules/x/y.js"):
        (repo.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (repo.folder / name).write_text("mine\n")
    (repo.folder / "file0.txt").write_text("changed\n")

    prepare(repo.folder, tree, copy=(".env", "certs/*", "file0.txt", "nothing"), link=("node_modules",))

    assert ["mine\n"] * 3 == [(tree / name).read_text() for name in (".env", "certs/a.pem", "certs/b.pem")]
    assert repo.folder / "node_modules" == (tree / "node_modules").readlink()
    assert "one\n" == (tree / "file0.txt").read_text()


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret", ".git/config", "", "*/HEAD"])
@pytest.mark.parametrize("key", ["copy", "link"])
def test_a_path_out_of_the_repository_is_refused(repo: Repo, tree: Path, tmp_path: Path, path: str, key: str) -> None:
    (tmp_path / "secret").write_text("no\n")
    before = sorted(tree.rglob("*"))

    with pytest.raises(UsageError, match=f"worktree.{key}"):
        prepare(repo.folder, tree, **{key: (path,)})

    assert before == sorted(tree.rglob("*"))


@pytest.mark.parametrize("pattern", ["out", "out/secret", "*"])
def test_a_link_out_of_the_checkout_is_refused(repo: Repo, tree: Path, tmp_path: Path, pattern: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("no\n")
    (repo.folder / "out").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="which a link leads elsewhere"):
        prepare(repo.folder, tree, copy=(pattern,))


def test_nothing_is_written_through_a_link_of_the_worktree(repo: Repo, tree: Path, tmp_path: Path) -> None:
    (repo.folder / "certs").mkdir()
    (repo.folder / "certs" / "a").write_text("mine\n")
    (tmp_path / "elsewhere").mkdir()
    (tree / "certs").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RefusedError, match="a link leads out of the worktree"):
        prepare(repo.folder, tree, copy=("certs/a",))

    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_the_setup_runs_in_the_worktree_and_its_output_is_reported(repo: Repo, tree: Path) -> None:
    assert [f"{tree}\nto stderr"] == prepare(repo.folder, tree, setup="pwd; echo to stderr >&2")


def test_a_setup_that_fails_reports_its_exit(repo: Repo, tree: Path) -> None:
    with pytest.raises(LaunchError, match="failed with exit code 3: no such package"):
        prepare(repo.folder, tree, setup="echo begin; echo no such package; exit 3")


def test_a_setup_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"took longer than 0\.2 s"):
        run_command(f"sleep 600 & echo $! >{tmp_path}/pid; wait", tmp_path, 0.2, "setup", lambda text: None)

    pid = (tmp_path / "pid").read_text().strip()
    until(lambda: has_ended(int(pid)), what="the end of what was killed")


def test_processes_left_by_a_setup_do_not_delay_the_session(tmp_path: Path) -> None:
    run_command("sleep 30 & exit 0", tmp_path, 20.0, "setup", lambda text: None)
