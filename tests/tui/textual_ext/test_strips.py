"""Light strips and plain containers do what Textual's do."""

import subprocess
import sys
from itertools import pairwise

import pytest
from rich.segment import Segment
from rich.style import Style
from textual import strip as of_textual
from textual.app import App, ComposeResult
from textual.cache import FIFOCache
from textual.color import Color
from textual.containers import Container, Vertical
from textual.filter import DimFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Label

from kasmon.tui.textual_ext import strips

CACHES = [name for name in Strip.__slots__ if name.endswith("_cache") and name != "_render_cache"]


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own, until a test wants ours."""
    monkeypatch.setattr(of_textual, "FIFOCache", FIFOCache)


def text() -> Strip:
    plain = Style(color="#ffffff", bgcolor="#0000ff")
    return Strip([Segment("one ", plain), Segment("two ", plain + Style(dim=True)), Segment("three", plain)])


def pieces(strip: Strip) -> list[object]:
    """What it gives by way of each of its caches."""
    bold = Style(bold=True)
    return [
        [(piece.text, piece.cell_length) for piece in strip.divide([2, 6, 13])],
        strip.crop(2, 9)._segments,
        strip.crop_extend(3, 20, bold)._segments,
        strip.apply_style(bold)._segments,
        strip.apply_filter(DimFilter(), Color.parse("black"))._segments,
        strip.adjust_cell_length(16, bold)._segments,
        strip.apply_offsets(3, 4)._segments,
    ]


def test_a_strip_returns_the_same_pieces_the_first_time_and_from_its_caches(heavy: None) -> None:
    wanted = pieces(text())
    strips.lighten_strips()
    strip = text()

    assert wanted == pieces(strip) == pieces(strip)


def test_every_cache_of_a_strip_is_lightweight(heavy: None) -> None:
    """What Textual adds or renames is told here."""
    strips.lighten_strips()
    strip = text()
    kept = pieces(strip)

    assert 7 == len(kept) == len(CACHES)
    assert all(type(getattr(strip, name)) is strips.BoundedCache and getattr(strip, name)._kept for name in CACHES)


def test_an_empty_cache_is_small() -> None:
    heavy: FIFOCache[int, int] = FIFOCache(4)

    assert sys.getsizeof(strips.BoundedCache(4)) < (sys.getsizeof(heavy) + sys.getsizeof(heavy._cache)) / 2


def test_a_full_cache_drops_its_oldest_entry() -> None:
    cache = strips.BoundedCache(2)
    assert cache.get("a") is None
    for number, key in enumerate("aabcb"):
        cache[key] = number

    assert [None, 4, 3] == [cache.get(key) for key in "abc"]


class Grounds(App[None]):
    """A label on a ground with a side border, and as much free room."""

    CSS = """
    .ground { background: darkblue; height: 6; border-left: solid red; }
    .inner { background: darkgreen; width: 12; height: 3; }
    .plain > .inner { border-right: outer white; }
    Label { margin: 1 2; }
    """

    def __init__(self, outer: type[Widget], inner: type[Widget]) -> None:
        super().__init__()
        self.outer, self.inner = outer, inner

    def compose(self) -> ComposeResult:
        with self.outer(classes="ground"), self.inner(classes="inner"):
            yield Label("text")


async def test_a_plain_container_looks_like_textuals_own_also_when_it_changes() -> None:
    async def pictures(outer: type[Widget], inner: type[Widget]) -> list[list[list[Segment]]]:
        async with Grounds(outer, inner).run_test(size=(30, 8)) as pilot:
            seen = []
            for change in ("", "plain"):
                pilot.app.query_one(".ground").add_class(change) if change else None
                await pilot.pause()
                seen.append([[*line.simplify()] for line in pilot.app.screen._compositor.render_strips()])
            return seen

    wanted = await pictures(Container, Vertical)
    assert wanted[0] != wanted[1]
    assert wanted == await pictures(strips.UniformContainer, strips.UniformVertical)


async def test_the_lines_of_a_plain_container_are_one_line() -> None:
    async with Grounds(strips.UniformContainer, strips.UniformVertical).run_test(size=(30, 8)) as pilot:
        ground = pilot.app.query_one(".ground")

        assert 1 == len({id(line) for line in ground.render_lines(ground.size.region)})


class Rows(Widget):
    """Three rows on a ground of their own."""

    DEFAULT_CSS = "Rows { background: darkblue; color: white; height: 3; }"

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(f"row {y} ".ljust(self.size.width), Style(color="red", dim=y == 1))], self.size.width)


class BareRows(strips.LinesOnlyMixin, Rows):
    pass


PART = Region(4, 1, 20, 2)


@pytest.mark.parametrize("crop", [Region(0, 0, 30, 3), PART], ids=["all", "a part"])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "no colours"])
async def test_a_bare_widget_shows_the_same_as_textuals_own(
    crop: Region, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lines(kind: type[Widget]) -> list[list[Segment]]:
        class Alone(App[None]):
            def compose(self) -> ComposeResult:
                yield kind()

        async with Alone().run_test(size=(30, 8)) as pilot:
            return [[*line.simplify()] for line in pilot.app.query_one(kind).render_lines(crop)]

    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    assert await lines(Rows) == await lines(BareRows)


async def test_a_bare_widget_detects_a_changed_background() -> None:
    """What is faint is mixed with the ground that it stands on."""

    class Both(App[None]):
        CSS = "Rows.-green { background: darkgreen; }  .-lit Rows { background: $primary; }"

        def compose(self) -> ComposeResult:
            yield Rows()
            yield BareRows()

    async with Both().run_test(size=(30, 8)) as pilot:
        theirs, ours = pilot.app.query(Rows)
        seen = []
        for change in (
            lambda: None,
            lambda: pilot.app.query(Rows).add_class("-green"),
            lambda: pilot.app.add_class("-lit"),
            lambda: setattr(pilot.app, "theme", "nord"),
        ):
            change()
            await pilot.pause()
            wanted, lines = ([[*line.simplify()] for line in each.render_lines(PART)] for each in (theirs, ours))
            assert wanted == lines
            seen.append(wanted)
    assert all(one != other for one, other in pairwise(seen))


def test_the_first_frame_loads_no_tables_of_widths() -> None:
    """They are a megabyte; who shows what is unusual gets the real ones."""
    code = (
        "import sys, kasmon.tui.transcript.pyte_screen; from kasmon.model.transcript.text import cells; "
        "cells('done · 3 lines … ✓ é');"
        "print('wcwidth' in sys.modules); print(cells('日本'), 'wcwidth' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert ["False", "4 True"] == done.stdout.splitlines()
