"""A hunk is reverted or staged as it was shown, and that is undone; what changed since is refused."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import NotFoundError, RefusedError, SessionBusyError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.review.comments import build_comment
from kasmon.supervisor.review.hunks import last_action, list_hunks, revert_hunk, stage_hunk, undo_hunk
from tests.support.git_repo import Repo

LINES = [f"line {number}" for number in range(1, 41)]


class Work:
    """A worktree whose branch has a commit, and a session that works in it."""

    def __init__(self, folder: Path) -> None:
        main = Repo(folder / "main")
        main.commit("a.txt", "\n".join(LINES) + "\n")
        main.git("worktree", "add", "--quiet", "-b", "work", str(folder / "work"))
        self.repo = main
        self.folder = folder / "work"
        self.paths = Paths(state=folder / "state", config=folder / "config")
        self.session = Session(id=SessionId("s"), name="one", workdir=str(self.folder))
        self.paths.folder("s").mkdir(parents=True)

    def edit(self, **changes: str) -> None:
        """Replace `line N` by the value of `lN`, in what the file has now."""
        path = self.folder / "a.txt"
        lines = path.read_text().split("\n")
        for name, text in changes.items():
            lines[int(name[1:]) - 1] = text
        path.write_text("\n".join(lines))

    def hunks(self) -> list[ShownHunk]:
        return list_hunks(self.paths, self.session, None)

    def undo(self) -> str:
        return undo_hunk(self.paths, self.session, last_action(self.paths, self.session))

    def staged(self) -> str:
        return self.repo.git("diff", "--cached", "-U0", at=self.folder)

    @property
    def text(self) -> str:
        return (self.folder / "a.txt").read_text()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_one_hunk_is_reverted_and_the_revert_is_undone(work: Work) -> None:
    work.edit(l3="three", l30="thirty")
    before = work.text

    assert "The hunk of a.txt is reverted." == revert_hunk(work.paths, work.session, work.hunks()[0])
    assert "line 3\n" in work.text
    assert "thirty\n" in work.text
    assert "" == work.staged()
    assert "The hunk of a.txt is restored." == work.undo()
    assert before == work.text
    with pytest.raises(NotFoundError, match="no hunk of 'one'"):
        work.undo()


def test_one_hunk_is_staged_and_unstaged(work: Work) -> None:
    work.edit(l3="three\nand more", l12="", l30="thirty")

    stage_hunk(work.paths, work.session, work.hunks()[-1])
    assert "+thirty" in work.staged()
    assert "three" not in work.staged()
    assert "The hunk of a.txt is unstaged." == work.undo()
    assert "" == work.staged()
    assert "thirty" in work.text


def test_only_the_unstaged_part_of_a_hunk_is_staged(work: Work) -> None:
    """The hunk of the branch has a committed line, a staged one, an added one and a removed one."""
    work.edit(l3="three")
    work.repo.git("commit", "--quiet", "-am", "three", at=work.folder)
    work.edit(l5="five")
    work.repo.git("add", "a.txt", at=work.folder)
    work.edit(l7="seven\nand more", l10="ten")
    path = work.folder / "a.txt"
    path.write_text(path.read_text().replace("line 9\n", ""))
    (hunk,) = work.hunks()

    stage_hunk(work.paths, work.session, hunk)
    assert work.text.strip() == work.repo.git("show", ":a.txt", at=work.folder)
    with pytest.raises(RefusedError, match="nothing of this hunk"):
        stage_hunk(work.paths, work.session, hunk)


def test_a_new_and_a_deleted_file_are_reverted_staged_and_restored(work: Work) -> None:
    (work.folder / "new dir").mkdir()
    new = work.folder / "new dir" / "tab\there.txt"
    new.write_text("hello\n")
    (work.folder / "file0.txt").unlink()
    hunks = {hunk.name: hunk for hunk in work.hunks()}

    for hunk in hunks.values():
        stage_hunk(work.paths, work.session, hunk)
    assert {"A", "D"} == {line[0] for line in work.repo.git("status", "--short", at=work.folder).splitlines()}
    work.undo()
    work.undo()
    for hunk in hunks.values():
        revert_hunk(work.paths, work.session, hunk)
    assert not new.exists()
    assert "one\n" == (work.folder / "file0.txt").read_text()
    work.undo()
    work.undo()
    assert "hello\n" == new.read_text()
    assert not (work.folder / "file0.txt").exists()


def test_a_file_that_changed_since_it_was_shown_is_refused(work: Work) -> None:
    work.edit(l3="three")
    (hunk,) = work.hunks()
    work.edit(l4="four")
    before = work.text

    for change in (revert_hunk, stage_hunk):
        with pytest.raises(RefusedError, match="is no longer as it was shown"):
            change(work.paths, work.session, hunk)
    assert (before, "") == (work.text, work.staged())


def test_an_undo_after_another_change_is_refused(work: Work) -> None:
    work.edit(l3="three")
    revert_hunk(work.paths, work.session, work.hunks()[0])
    work.edit(l3="other")

    with pytest.raises(RefusedError, match="is no longer as it was shown"):
        work.undo()
    assert "other" in work.text


def test_an_invalid_hunk_is_refused(work: Work) -> None:
    """A line break that git does not count makes lines of a file look like the header of a hunk."""
    (work.folder / "new.txt").write_text("x\r@@ -1,1 +1,1 @@\r-a\r+b\r\n")
    (hunk,) = work.hunks()
    fake = msgspec.structs.replace(hunk, lines=("@@ -1,1 +1,1 @@", "-a", "+b"))

    with pytest.raises(RefusedError):
        revert_hunk(work.paths, work.session, fake)
    assert (work.folder / "new.txt").exists()


def test_no_program_configured_in_the_repository_runs(work: Work, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for key in ("filter.x.clean", "filter.x.smudge"):
        work.repo.git("config", key, f"touch {ran}; cat")
    (work.folder / ".gitattributes").write_text("*.txt filter=x\n")
    work.edit(l3="three", l30="thirty")
    ran.unlink(missing_ok=True)
    first, last = (hunk for hunk in work.hunks() if hunk.name == "a.txt")

    with pytest.raises(UnableError, match="its attribute filter=x"):
        stage_hunk(work.paths, work.session, last)
    revert_hunk(work.paths, work.session, first)
    assert not ran.exists()


def test_while_a_turn_runs_nothing_is_reverted_and_a_turns_hunk_is_not_staged(work: Work) -> None:
    work.edit(l3="three")
    (hunk,) = work.hunks()
    busy = Session(id=SessionId("s"), name="one", workdir=str(work.folder), in_turn=True)

    with pytest.raises(SessionBusyError):
        revert_hunk(work.paths, busy, hunk)
    with pytest.raises(UnableError):
        stage_hunk(work.paths, work.session, ShownHunk(name="a.txt", head="", lines=(), turn=1))
    assert subprocess.run(["git", "diff", "--quiet"], cwd=work.folder, check=False).returncode


@pytest.mark.parametrize("attribute", ["filter=lfs", "working-tree-encoding=UTF-16", "ident"])
def test_a_file_that_git_converts_is_not_staged_in_part(work: Work, attribute: str) -> None:
    work.edit(l3="three")
    [hunk] = work.hunks()
    (work.repo.folder / ".git" / "info" / "attributes").write_text(f"*.txt {attribute}\n")

    with pytest.raises(UnableError, match=f"its attribute {attribute.split('=')[0]}="):
        stage_hunk(work.paths, work.session, next(iter(work.hunks()), hunk))
    assert "" == work.staged()


def test_no_content_of_a_file_is_taken_for_another_file(work: Work) -> None:
    """A lone return, and what else ends a line on a screen, is within a line for git, so it is within a line here."""
    fake = "diff --git a/b b/b\r--- a/b\x0c+++ b/b\u2028@@ -1 +1 @@\x85-a\v+b"
    (work.folder / "new.txt").write_text(f"one\r{fake}\ntwo\r\n", newline="")
    (hunk,) = work.hunks()

    assert ("new.txt", 3) == (hunk.name, len(hunk.lines))
    assert "+one␍diff --git a/b b/b␍--- a/b␍+++ b/b␍@@ -1 +1 @@␍-a␍+b" == hunk.lines[1]
    assert 1 == build_comment(work.session, "new.txt", 2, ["two"], "why?").occurrences
    revert_hunk(work.paths, work.session, hunk)
    assert not (work.folder / "new.txt").exists()


def test_the_hunk_of_a_submodule_is_not_reverted_because_git_would_ignore_it(work: Work) -> None:
    inner = Repo(work.folder / "sub")
    work.repo.git("add", "sub", at=work.folder)
    work.repo.git("commit", "--quiet", "-m", "sub", at=work.folder)
    work.repo.git("checkout", "--quiet", "--detach", at=work.repo.folder)
    work.repo.git("merge", "--quiet", "--ff-only", "work", at=work.repo.folder)
    inner.commit("more.txt")
    (hunk,) = work.hunks()

    with pytest.raises(UnableError, match="'sub' is a submodule"):
        revert_hunk(work.paths, work.session, hunk)
    with pytest.raises(NotFoundError):
        work.undo()
    assert "The hunk of sub is staged." == stage_hunk(work.paths, work.session, hunk)
