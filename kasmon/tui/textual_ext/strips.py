"""A screen that weighs less: fewer strips, and lighter ones.

Textual 8.2 gives each line of each widget, and each piece of one that lies between the edges of others, a strip of its
own, with seven caches and a dictionary in each: a kilobyte, for four thousand pieces of a screen. Most of the pieces
are of containers that nobody sees, and most of the caches stay empty. `tests/tui/textual_ext/test_strips.py` holds
private names.
"""

from typing import Any

from textual import strip
from textual.color import Color
from textual.containers import Container, Vertical
from textual.geometry import Region
from textual.strip import Strip


class BoundedCache:
    """Keeps the *most* values that came last; what a `Strip` asks of Textual's `FIFOCache`, and no more."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Any, Any] | None = None

    def get(self, key: Any) -> Any:
        """What was kept under *key*; None if nothing is."""
        return None if self._kept is None else self._kept.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        kept = self._kept
        if kept is None:
            kept = self._kept = {}
        elif len(kept) >= self._most and key not in kept:
            del kept[next(iter(kept))]
        kept[key] = value


class UniformLinesMixin:
    """A widget whose lines all look alike, as a container's do that has no border but at its sides: one is made."""

    def render_lines(self, crop: Region) -> list[Strip]:
        first = Region(crop.x, 0, crop.width, min(crop.height, 1))
        lines: list[Strip] = super().render_lines(first)  # type: ignore[misc]  # a widget's, which stands beside this
        return lines * crop.height


class LinesOnlyMixin:
    """A widget whose lines are all that it shows: no border, padding, opacity or link has to be put around them.

    Textual's own way asks for a dozen styles a line, which costs more than a line that is known already.
    """

    _ground: Color | None = None
    """What is behind the lines, until the styles change: to find it out takes as long as to draw ten of them."""

    def notify_style_update(self: Any) -> None:
        super().notify_style_update()  # type: ignore[misc]  # a widget's, which stands beside this
        self._ground = None

    def render_lines(self: Any, crop: Region) -> list[Strip]:
        lines: list[Strip] = [self.render_line(y) for y in crop.line_range]
        if filters := self.get_line_filters():
            ground = self._ground = self._ground or self.background_colors[1]
            for each in filters:
                lines = [line.apply_filter(each, ground) for line in lines]
        if crop.column_span != (0, self.region.width):
            lines = [line.crop(*crop.column_span) for line in lines]
        return lines


class UniformContainer(UniformLinesMixin, Container):
    """Textual's, plain."""


class UniformVertical(UniformLinesMixin, Vertical):
    """Textual's, plain."""


def lighten_strips() -> None:
    """From now on every strip that is made has caches of this kind."""
    strip.FIFOCache = BoundedCache  # type: ignore[attr-defined, assignment]  # it only imports the name
