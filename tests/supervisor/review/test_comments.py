"""A comment is on a file as it is shown, whatever bytes its name has."""

import asyncio
from pathlib import Path

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.review.file_changes import split
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.review.comments import build_comment, list_comments, write_comment
from kasmon.supervisor.worktrees.changes import diff_of
from tests.support.git_repo import Repo


@pytest.mark.parametrize("name", ["gr\udcf6\udcdfe", "a\nb\x1b[31m", "-rf", "über"])
def test_a_comment_on_a_file_with_any_name_is_open_while_its_lines_are_there(tmp_path: Path, name: str) -> None:
    repo = Repo(tmp_path / "repo")
    (repo.folder / "sub").mkdir()
    path = repo.folder / "sub" / name
    path.write_text("one\ntwo\n")
    paths = Paths(state=tmp_path / "state", config=tmp_path / "config")
    session = Session(id=SessionId("s"), name="one", workdir=str(repo.folder))
    paths.folder("s").mkdir(parents=True)
    (change,) = split(diff_of(session))

    asyncio.run(write_comment(paths, session, build_comment(session, change.name, 2, ["two"], "why?")))
    assert ["open"] == [each.state for each in list_comments(paths, session)]
    path.write_text("one\n")
    assert ["resolved"] == [each.state for each in list_comments(paths, session)]
