"""Which worktrees of a plan go: none with what is saved nowhere else, and none in which somebody works."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kasmon.errors import RefusedError
from kasmon.model.fleet import Fleet
from kasmon.model.plan.events import PlanEnded
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder
from kasmon.supervisor.plans.task_folder import lay_out
from kasmon.supervisor.plans.worktree_removal import (
    CleanResult,
    clean,
    find_ignored,
    list_plan_worktrees,
    remove_plan_worktree,
)
from kasmon.supervisor.worktrees.worktree import create
from tests.supervisor.plans.test_runner import Site
from tests.support.git_repo import Repo
from tests.support.sample_plans import session, task
from tests.support.supervisor.env import Env

FILES = (".env", "notes.local", "build/a.o", "build/deep/b.o")


class Over:
    """A plan that is over, and one worktree of it, in which nothing could be lost."""

    def __init__(self, env: Env) -> None:
        self.paths = env.paths
        self.repo = Repo(env.folder / "work")
        self.repo.commit(".gitignore", ".env\n*.local\nbuild/\n")
        self.book = Site(env).book
        self.book.note(PlanEnded(at=9, outcome="done"))
        self.tree = Path(create(self.repo.folder, self.book.folder / "trees" / "shared", "plan/tidy").path)

    def write(self, *files: str) -> None:
        for file in files:
            (self.tree / file).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / file).write_text("only here\n")

    def listed(self, *patterns: str) -> tuple[str, ...]:
        return find_ignored(self.book, patterns)[self.tree].listed

    def clean(self, *patterns: str, sessions: tuple[Session, ...] = ()) -> CleanResult:
        return clean(self.book, Fleet(sessions=sessions), find_ignored(self.book, patterns))

    @property
    def removed(self) -> CleanResult:
        return CleanResult((str(self.tree),), ())


@pytest.fixture
def over(env: Env) -> Over:
    return Over(env)


@contextmanager
def cat(*before: str, at: Path | None = None) -> Iterator[int]:
    """The pid of a process that waits, and does not know kasmon."""
    script = [*before, "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(script, cwd=at, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"ready\n" == process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.communicate(b"")


def test_a_plans_worktrees_are_listed_and_removed_by_the_same_rules(over: Over) -> None:
    [can_go] = list_plan_worktrees(over.paths, Fleet())
    over.write("new.txt")
    [stays] = list_plan_worktrees(over.paths, Fleet())

    assert (f"{over.book.plan}/shared", "plan/tidy", "") == (can_go.name, can_go.tree.branch, can_go.keeps)
    assert over.repo.head == can_go.tree.base
    assert can_go.size_bytes > 0
    assert "1 file is not committed" in stays.keeps
    with pytest.raises(RefusedError, match="1 file is not committed"):
        remove_plan_worktree(over.paths, can_go, Fleet())
    (over.tree / "new.txt").unlink()
    assert "its branch plan/tidy stays" in remove_plan_worktree(over.paths, can_go, Fleet())
    assert () == list_plan_worktrees(over.paths, Fleet())


def test_the_worktrees_of_a_running_plan_stay(env: Env) -> None:
    repo = Repo(env.folder / "work")
    book = Site(env).book
    create(repo.folder, book.folder / "trees" / "a", "plan/a")

    [entry] = list_plan_worktrees(env.paths, Fleet())

    assert "has not ended" in entry.keeps
    assert f"kasmon plan abort {book.plan}" in entry.hint
    with pytest.raises(RefusedError, match="has not ended"):
        remove_plan_worktree(env.paths, entry, Fleet())


# Ignored files


def test_ignored_files_keep_a_worktree_until_each_is_named_by_a_pattern(over: Over) -> None:
    over.write(*FILES)

    assert FILES == (*over.listed()[:1], over.listed()[3], *over.listed()[1:3])
    for patterns in ((), ("build/",), ("build/", "*.local"), ("!*", "", "deep")):
        _, [why] = over.clean(*patterns)
        assert "git ignores " in why
        assert "'.env'" in why
        assert all((over.tree / file).exists() for file in FILES)

    assert over.removed == over.clean("build/", "*.local", "/.env")
    assert not over.tree.exists()


def test_files_that_appear_after_the_listing_keep_their_worktree(over: Over) -> None:
    over.write("build/a.o")
    found = find_ignored(over.book, ["*"])
    over.write("build/later.o")

    _, [why] = clean(over.book, Fleet(), found)

    assert "git ignores 1 file: 'build/' (1 file)" in why


def test_files_that_kasmon_added_and_has_elsewhere_keep_no_worktree(over: Over) -> None:
    lay_out(over.tree, task("a", 1))
    over.write(".kasmon/task-1/result.md")
    kept = over.book.result(task("a", 1))
    private_folder(kept.parent)
    kept.write_text("only here\n")

    assert () == over.listed()
    assert over.removed == over.clean()


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        (".kasmon/task-1/result.md", None),
        (".kasmon/task-1/result.md", "another one\n"),
        (".kasmon/task-1/result.md", "only here\nand more\n"),
        (".kasmon/task-1/draft.md", "only here\n"),
        (".kasmon/.gitignore", None),
    ],
    ids=["never claimed", "another result", "it was longer", "another file", "not as it was put there"],
)
def test_files_that_are_only_in_that_folder_keep_it(over: Over, file: str, kept: str | None) -> None:
    (over.repo.folder / ".git" / "info" / "exclude").write_text(".kasmon\n")
    over.write(file)
    result = over.book.result(task("a", 1))
    private_folder(result.parent)
    if kept is not None:
        result.write_text(kept)

    assert (file,) == over.listed()
    assert () == over.clean().removed


# Who works there


@pytest.mark.parametrize("state", [SessionState.WORKING, SessionState.PAUSED, SessionState.UNSURE])
@pytest.mark.parametrize("inside", ["", "deep"])
def test_a_session_of_any_plan_or_none_keeps_the_worktree(over: Over, state: SessionState, inside: str) -> None:
    link = over.tree.parent.parent / "link"
    link.symlink_to(over.tree)
    for folder in (over.tree, link):
        living = session("x", state, plan=None, workdir=str(folder / inside))

        _, [why] = over.clean(sessions=(living,))

        assert f"session 'x' still runs in '{over.tree}'" in why
        assert "`kasmon stop sx` stops it" in why


def test_a_session_that_ended_or_is_elsewhere_does_not(over: Over) -> None:
    ended = session("x", SessionState.ENDED, workdir=str(over.tree))
    beside = session("y", workdir=f"{over.tree}2")
    above = session("z", workdir=str(over.tree.parent))

    assert over.removed == over.clean(sessions=(ended, beside, above))


def test_a_process_with_its_working_directory_in_the_worktree_keeps_it_until_it_ends(over: Over) -> None:
    for folder in (over.tree, over.tree / "empty"):
        folder.mkdir(exist_ok=True)
        with cat(at=folder) as pid:
            _, [why] = over.clean()
            assert f"process {pid} ('cat') runs in '{over.tree}'" in why
    with cat(at=over.tree.parent):
        assert over.removed == over.clean()


@pytest.mark.sandboxes
def test_a_process_counts_also_if_it_uses_another_path_of_the_worktree(over: Over) -> None:
    """In a mount namespace of its own the name of its directory says nothing."""
    with cat("bwrap", "--dev-bind", "/", "/", "--bind", str(over.tree), "/mnt", "--chdir", "/mnt"):
        _, [why] = over.clean()

    assert "('cat') runs in" in why
