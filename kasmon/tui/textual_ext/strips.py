"""A screen that uses less memory: fewer strips, and smaller ones.

Textual 8.2 creates a strip for each line of each widget, and for each piece between the edges of others. Each has seven
caches with a dictionary: a kilobyte, for four thousand pieces of a screen. Most pieces belong to invisible containers,
and most caches stay empty.
"""

from typing import Any

from textual import strip
from textual.color import Color
from textual.containers import Container, Vertical
from textual.geometry import Region
from textual.strip import Strip


class BoundedCache:
    """Keeps the *most* latest values; has only what a `Strip` uses of Textual's `FIFOCache`."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Any, Any] | None = None

    def get(self, key: Any) -> Any:
        """Return the value of *key*; None if there is none."""
        return None if self._kept is None else self._kept.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        kept = self._kept
        if kept is None:
            kept = self._kept = {}
        elif len(kept) >= self._most and key not in kept:
            del kept[next(iter(kept))]
        kept[key] = value


class UniformLinesMixin:
    """A widget whose lines all look alike, such as a container without top and bottom border: one line is drawn."""

    def render_lines(self, crop: Region) -> list[Strip]:
        first = Region(crop.x, 0, crop.width, min(crop.height, 1))
        lines: list[Strip] = super().render_lines(first)  # type: ignore[misc]  # a widget's, which stands beside this
        return lines * crop.height


class LinesOnlyMixin:
    """A widget that only consists of its lines: without border, padding, opacity or links.

    Textual's own rendering looks up a dozen styles a line, which costs more than a cached line.
    """

    _ground: Color | None = None
    """The background colour, until the styles change: computing it takes as long as drawing ten lines."""

    def notify_style_update(self: Any) -> None:
        super().notify_style_update()  # type: ignore[misc]  # a widget's, which stands beside this
        self._ground = None

    def render_lines(self: Any, crop: Region) -> list[Strip]:
        lines: list[Strip] = [self.render_line(y) for y in crop.line_range]
        if filters := self.get_line_filters():
            background = self._ground = self._ground or self.background_colors[1]
            for each in filters:
                lines = [line.apply_filter(each, background) for line in lines]
        if crop.column_span != (0, self.region.width):
            lines = [line.crop(*crop.column_span) for line in lines]
        return lines


class UniformContainer(UniformLinesMixin, Container):
    """Textual's container."""


class UniformVertical(UniformLinesMixin, Vertical):
    """Textual's vertical container."""


def lighten_strips() -> None:
    """Make every new strip use `BoundedCache`."""
    strip.FIFOCache = BoundedCache  # type: ignore[attr-defined, assignment]  # it only imports the name
