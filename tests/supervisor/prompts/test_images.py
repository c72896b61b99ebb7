"""The pictures that a person sends: files named or mentioned, within limits, and only to agents that accept them."""

import os
import time
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, UsageError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.prompts.images import KEPT_S, find_mentioned, read_images, store_picture
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


def test_a_pasted_picture_is_stored_for_the_user_alone_and_can_be_mentioned(tmp_path: Path) -> None:
    where = Paths(state=tmp_path / "s", given_runtime=tmp_path / "r", config=tmp_path / "c")
    path = store_picture(where, png(4, 3))

    assert (0o600, 0o700) == (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777)
    assert path == store_picture(where, png(4, 3))
    assert [png(4, 3)] == [each.data for each in find_mentioned(session(tmp_path, *SEES), f"see @{path}")]
    with pytest.raises(UsageError, match="no PNG, JPEG, GIF or WebP"):
        store_picture(where, b"text")


def test_a_pasted_picture_that_is_older_than_a_week_goes_when_another_is_stored(tmp_path: Path) -> None:
    where = Paths(state=tmp_path / "s", given_runtime=tmp_path / "r", config=tmp_path / "c")
    old, young = store_picture(where, png(4, 3)), store_picture(where, png(5, 3))
    os.utime(old, (time.time() - KEPT_S - 60,) * 2)
    new = store_picture(where, png(6, 3))

    assert {young, new} == {*young.parent.iterdir()}
