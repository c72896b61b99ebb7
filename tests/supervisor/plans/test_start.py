"""A plan is agreed to, and found again."""

import os
from pathlib import Path

import pytest

from kasmon.errors import GitError, PlanNotFoundError, RefusedError, UnavailableError
from kasmon.model.plan.parser import read
from kasmon.paths import user_paths
from kasmon.store.plan_log import PlanLog, plans
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.runner import ID
from tests.support.git_repo import Repo

TEXT = "## Wave 1\n### Task 1: a\n"


def agreed(name: str = "tidy.md", text: str = TEXT) -> PlanLog:
    plan = read(text, name)
    return start.store_approved_plan(user_paths(), plan, text, Path("/p") / name, Path("/"), headless=True)


def test_the_agreed_text_is_stored_as_shown() -> None:
    book = agreed("My plan.md")

    assert ("my-plan", "My plan.md", TEXT) == (book.plan, book.agreed.name, book.agreed.read_text())
    assert ("My plan", "/p/My plan.md", "/", True, start.digest(TEXT)) == (
        book.run.name, book.run.file, book.run.folder, book.run.headless, book.run.digest,
    )  # fmt: skip
    assert read(TEXT, "My plan.md") == read(book.agreed.read_text(), book.agreed.name)
    assert {0o600, 0o700} == {path.stat().st_mode & 0o777 for path in book.folder.rglob("*")}


@pytest.mark.parametrize("name", ["notes.txt", "PLAN", ".hidden", "x.MD", "x.markdown"])
def test_a_file_of_any_name_is_found_again_as_its_plan(name: str) -> None:
    book = agreed(name)

    assert read(TEXT, name) == read(book.agreed.read_text(), book.agreed.name)


@pytest.mark.parametrize(
    ("title", "id_"),
    [
        ("Tidy up!", "tidy-up"),
        ("my_plan", "my_plan"),
        ("日本", "plan"),
        ("../../x", "x"),
        ("a" * 90, "a" * 40),
        ("_", "_"),
    ],
)
def test_a_plan_has_an_id_that_its_runner_accepts(title: str, id_: str) -> None:
    book = agreed(text=f"# {title}\n{TEXT}")

    assert id_ == book.plan
    assert ID.fullmatch(book.plan)
    assert book.folder.parent == user_paths().plans


def test_each_run_has_an_id_of_its_own_and_the_file_means_the_newest() -> None:
    ids = [agreed().plan for _ in range(3)]

    assert ["tidy", "tidy-2", "tidy-3"] == ids
    assert all(ID.fullmatch(id_) for id_ in ids)
    assert sorted(ids) == sorted(plans(user_paths()))
    assert "tidy-3" == start.find_plan(user_paths(), "/p/tidy.md").plan
    assert "tidy-2" == start.find_plan(user_paths(), "tidy-2").plan


@pytest.mark.parametrize("wanted", ["nope", "/p/other.md", "", "../s"])
def test_a_plan_that_never_ran_is_not_found(wanted: str) -> None:
    agreed()

    with pytest.raises(PlanNotFoundError, match="there is no plan"):
        start.find_plan(user_paths(), wanted)


def test_an_agreed_edit_is_the_plan_from_then_on() -> None:
    book = agreed()
    new = TEXT + "### Task 2: b\n"

    start.apply_edit(book, new)
    book.more()

    assert (new, start.digest(new)) == (book.agreed.read_text(), book.run.digest)


def test_if_nothing_can_be_written_nothing_starts() -> None:
    where = user_paths()
    where.make()
    where.plans.touch()

    with pytest.raises(UnavailableError, match="cannot write into"):
        agreed()


def test_a_plan_text_is_read_whole_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.md"
    file.write_bytes(b"\xef\xbb\xbf# x\n")
    assert "# x\n" == start.text_of(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RefusedError, match="is not UTF-8"):
        start.text_of(file)
    file.write_bytes(b"x" * ((8 << 20) + 1))
    with pytest.raises(RefusedError, match="larger than 8 MiB"):
        start.text_of(file)
    file.unlink()
    for path in (file, tmp_path, file / "x"):
        with pytest.raises(PlanNotFoundError):
            start.text_of(path)
    file.symlink_to(file)
    with pytest.raises(RefusedError, match="cannot be read"):
        start.text_of(file)


def test_a_special_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.md")

    with pytest.raises(RefusedError, match="is a pipe"):
        start.text_of(tmp_path / "p.md")


def test_a_plan_that_was_only_agreed_to_does_not_run() -> None:
    assert not start.is_run(agreed())


@pytest.mark.parametrize(("kind", "is_repository"), [("folder", True), ("shared", True), ("shared", False)])
def test_the_repository_of_a_plan_is_logged_with_the_consent(tmp_path: Path, kind: str, is_repository: bool) -> None:
    if is_repository:
        Repo(tmp_path)
    text = f'worktree = "{kind}"\n[[task]]\nid = "a"\nprompt = "x"\n'
    (inside := tmp_path / "docs").mkdir()

    book = start.store_approved_plan(
        user_paths(), read(text, "p.toml"), text, inside / "p.toml", inside, headless=False
    )

    assert (str(tmp_path / ".git") if is_repository else "") == book.run.repository


def test_a_repository_that_git_does_not_open_stops_only_plans_that_want_its_worktrees(tmp_path: Path) -> None:
    Repo(tmp_path).git("config", "core.repositoryFormatVersion", "99")
    texts = {kind: f'worktree = "{kind}"\n[[task]]\nid = "a"\nprompt = "x"\n' for kind in ("own", "folder")}

    with pytest.raises(GitError):
        start.store_approved_plan(
            user_paths(), read(texts["own"], "p.toml"), texts["own"], tmp_path, tmp_path, headless=False
        )
    assert [] == plans(user_paths())

    book = start.store_approved_plan(
        user_paths(), read(texts["folder"], "p.toml"), texts["folder"], tmp_path, tmp_path, headless=False
    )
    assert book.run.repository is None
