"""The pictures that a person sends: files named or mentioned, within limits, and only to agents that accept them."""

import os
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, UsageError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.prompts.images import find_mentioned, read_images
from tests.model.prompts.test_image import png

SEES = ("receives_images",)


def session(folder: Path, *abilities: str, via: str = "") -> Session:
    return Session(id=SessionId("aaaaaaaa"), workdir=str(folder), abilities=abilities, via=via)


def test_mentioned_pictures_are_read_from_the_sessions_folder(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(png(4, 3))
    found = find_mentioned(session(tmp_path, *SEES), 'look at @"a b.png" and @missing.png')

    assert [("a b.png", 4, 3)] == [(each.name, each.width, each.height) for each in found]
    assert png(4, 3) == found[0].data


def test_an_agent_that_accepts_none_gets_the_text_alone(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(4, 3))

    assert [] == find_mentioned(session(tmp_path, "streams"), "@a.png")
    assert [] == find_mentioned(session(tmp_path, *SEES, via="gpu-1"), "@a.png")


def test_a_picture_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        os.truncate(file.fileno(), 3_000_000_000)

    with pytest.raises(UsageError, match=r"has 3000\.0 MB; the limit is 5\.0 MB"):
        find_mentioned(session(tmp_path, *SEES), "@huge.png")


def test_a_pipe_or_a_missing_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("pipe.png", "missing.png"):
        with pytest.raises(NotFoundError, match="cannot be read"):
            read_images([name], str(tmp_path))
