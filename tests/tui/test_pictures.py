"""How the dashboard looks. `pytest --snapshot-update` draws anew; pictures are looked at before they are accepted."""

from collections.abc import Callable

import pytest

from tests.pictures import PICTURES, draw, stored
from tests.scenes import SCENES


@pytest.mark.parametrize("name", SCENES)
def test_the_dashboard_looks_as_it_was_accepted(name: str, snap_compare: Callable[..., bool]) -> None:
    scene = SCENES[name]

    assert snap_compare(scene.app(), terminal_size=scene.size, run_before=scene.act)


def test_without_colours_no_colour_is_in_the_picture(
    monkeypatch: pytest.MonkeyPatch, snap_compare: Callable[..., bool]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    scene = SCENES["list-120x40"]

    assert snap_compare(scene.app(), terminal_size=scene.size, run_before=scene.act)


@pytest.mark.parametrize("name", PICTURES)
def test_the_readmes_pictures_are_fresh(name: str) -> None:
    """`make screenshots` draws them anew."""
    assert stored(name) == draw(name)


def test_a_picture_is_the_same_twice() -> None:
    assert draw("fleet") == draw("fleet")
