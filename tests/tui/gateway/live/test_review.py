"""What the review reads, and the command line of the user's editor."""

import asyncio
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.turn_trees import TurnTrees
from kasmon.tui.gateway.live.review import find_editor, read_changes
from tests.support.git_repo import Repo


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(id=SessionId("s"), name="one", workdir=str(Repo(tmp_path / "repo").folder))


@pytest.mark.parametrize(
    ("editor", "shown"),
    [
        ("", ["vi", "+3", "{file}"]),
        ("nvim -u NONE", ["nvim", "-u", "NONE", "+3", "{file}"]),
        ("/opt/code --wait", ["/opt/code", "--wait", "--goto", "{file}:3"]),
        ("hx", ["hx", "{file}:3"]),
    ],
)
def test_the_editor_opens_the_file_at_the_line(
    session: Session, editor: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    file = Path(session.workdir) / "file0.txt"

    assert [word.format(file=file) for word in shown] == list(find_editor(session, "file0.txt", 3))


def test_the_editor_opens_a_file_whose_name_is_no_utf8_by_its_own_name(session: Session) -> None:
    file = Path(session.workdir) / "caf\udce9.txt"
    file.write_text("x")

    assert str(file) == find_editor(session, "caf\ufffd.txt", 3)[-1]


def test_no_editor_opens_a_file_outside_of_the_worktree(session: Session) -> None:
    top = Path(session.workdir)
    (top / "link").symlink_to("/etc/passwd")
    (top / "folder").symlink_to("/etc")
    for name in ("link", "folder/passwd", "../outside", "/etc/passwd", "gone", ".", "a\0b"):
        with pytest.raises(UnableError, match="cannot open"):
            find_editor(session, name, 1)


def store_turns(paths: Paths, top: Path) -> None:
    """Two turns, each with a new file."""
    paths.turns("s").parent.mkdir(parents=True)
    trees = TurnTrees(paths.turns("s"))
    for number in (1, 2):
        trees.begin(top)
        (top / f"turn{number}.txt").write_text("text\n")
        trees.end(top, number)


async def test_the_branch_each_turn_and_the_last_one_are_read(session: Session, tmp_path: Path) -> None:
    paths = Paths(state=tmp_path / "state", config=tmp_path / "config")
    await asyncio.to_thread(store_turns, paths, Path(session.workdir))

    branch, last, first = [await read_changes(paths, session, turn) for turn in (None, 0, 1)]
    assert (None, (), True) == (branch.turn, branch.turns, "turn1.txt" in branch.diff and "turn2.txt" in branch.diff)
    assert (2, (1, 2), False) == (last.turn, last.turns, "turn1.txt" in last.diff)
    assert (1, True) == (first.turn, "turn1.txt" in first.diff)
    with pytest.raises(NotFoundError):
        await read_changes(paths, session, 3)
