"""How the dashboard looks. `pytest --snapshot-update` draws anew; pictures are looked at before they are accepted."""

import re
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from tests.support.dashboard_scenes import SCENES
from tests.support.screenshots import FRAME_S, PICTURES, TOUR, draw, draw_scene, stored
from tests.support.tui.pilot_pauses import USUAL_S, set_pauses


@pytest.fixture(autouse=True)
def _usual_pauses(_short_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is taken once nothing more is drawn; the other tests wait for what they look for."""
    set_pauses(USUAL_S, monkeypatch)


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


@pytest.mark.parametrize("name", [*PICTURES, "tour"])
def test_the_readmes_pictures_are_fresh(name: str) -> None:
    """`make screenshots` draws them anew."""
    assert stored(name) == draw(name)


def test_a_picture_is_the_same_twice() -> None:
    first = draw("fleet")
    draw_scene.cache_clear()

    assert first == draw("fleet")


def test_the_moving_picture_shows_each_scene_in_turn_and_is_under_1_mb() -> None:
    svg = stored("tour")
    frames = [group for group in ET.fromstring(svg) if "kasmon-frame" in group.get("class", "")]
    ids = [element.get("id") for element in ET.fromstring(svg).iter() if element.get("id")]
    delays = re.findall(r"\.kasmon-frame-(\d) { animation-delay: (\d+)s }", svg)

    assert len(svg.encode()) < 1_000_000
    assert len(TOUR) == len(frames)
    assert [(str(number), str(number * FRAME_S)) for number in range(len(TOUR))] == delays
    assert f"{100 // len(TOUR)}% {{ visibility: hidden }}" in svg
    assert f"kasmon-tour {len(TOUR) * FRAME_S}s step-end infinite" in svg
    assert len(set(ids)) == len(ids), "two frames share an id, so one would be clipped by the other"
