"""The pictures that a person sends: files named or mentioned, within limits, and only to agents that accept them."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, UsageError
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import IMAGE_BYTES, MOST
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


def test_an_agent_without_picture_support_gets_the_text_alone(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(4, 3))

    assert [] == find_mentioned(session(tmp_path, "streams"), "@a.png")
    assert [] == find_mentioned(session(tmp_path, *SEES, via="gpu-1"), "@a.png")


def test_a_picture_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        os.truncate(file.fileno(), 3_000_000_000)

    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"has 3000\.0 MB; the limit is 5\.0 MB"):
            find_mentioned(session(tmp_path, *SEES), "@huge.png")
        assert 2 * IMAGE_BYTES > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_pipe_or_a_missing_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("pipe.png", "missing.png", "nul\0.png"):
        with pytest.raises(NotFoundError, match="cannot be read"):
            read_images([name], str(tmp_path))


def test_more_pictures_than_a_prompt_may_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(4, 3))

    with pytest.raises(UsageError, match=f"has {MOST + 1} pictures; the limit is {MOST}"):
        read_images(["a.png"] * (MOST + 1), str(tmp_path))


def test_the_name_of_a_picture_is_treated_as_text(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J.png").write_bytes(png(4, 3))
    [image] = read_images(["a\x1b[2J.png"], str(tmp_path))

    assert "\x1b" not in image.name


def test_a_pasted_picture_is_stored_for_the_user_alone_and_can_be_mentioned(tmp_path: Path) -> None:
    where = Paths(state=tmp_path / "s", given_runtime=tmp_path / "r", config=tmp_path / "c")
    path = store_picture(where, png(4, 3))

    assert (0o600, 0o700) == (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777)
    assert path == store_picture(where, png(4, 3))
    assert 2 == len({store_picture(where, b"GIF89a" + bytes(pixels)) for pixels in ((4, 0, 3, 0), (3, 0, 4, 0))})
    assert [png(4, 3)] == [each.data for each in find_mentioned(session(tmp_path, *SEES), f"see @{path}")]
    with pytest.raises(UsageError, match="no PNG, JPEG, GIF or WebP"):
        store_picture(where, b"text")


def test_a_pasted_picture_older_than_a_week_is_deleted_when_another_is_stored(tmp_path: Path) -> None:
    where = Paths(state=tmp_path / "s", given_runtime=tmp_path / "r", config=tmp_path / "c")
    old, young = store_picture(where, png(4, 3)), store_picture(where, png(5, 3))
    os.utime(old, (time.time() - KEPT_S - 60,) * 2)
    new = store_picture(where, png(6, 3))

    assert {young, new} == {*young.parent.iterdir()}
