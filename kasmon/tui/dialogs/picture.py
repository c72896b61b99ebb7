"""Shows the pictures of a prompt: by the terminal's own protocol, else as coloured half cells, else by name and size.

What draws them is the extra `images` (textual-image and Pillow). textual-image asks the terminal when it is imported,
whose answer the dashboard's reader would take; so it is imported without a terminal, and the protocol is chosen here.
"""

import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.strip import Strip
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.prompts.image import PromptImage, describe
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.strips import LinesOnlyMixin
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console

Protocol: TypeAlias = Literal["kitty", "sixel", "cells", ""]
"""How a terminal shows pictures: the Terminal Graphics Protocol of kitty, sixel, half cells, or not at all."""
KITTY: Final = ("ghostty",)
SIXEL: Final = ("iterm.app", "wezterm", "mintty", "foot")
"""Values of TERM_PROGRAM, or beginnings of TERM. iTerm2 shows sixel too, and sixel can be cleared by text."""
CELL_PIXELS: Final = (10, 20)
DECODED_PIXELS: Final = 50_000_000
"""A picture that has more when it is decoded is not shown: it would take 200 MB. Photos are decoded reduced."""
MISSING: Final = (
    "Install kasmon with the extra `images` to see it: `pipx install --force '.[images]'` in kasmon's clone."
)


def find_protocol(environment: Mapping[str, str], *, utf8: bool) -> Protocol:
    """Return how the terminal of a program with *environment* shows pictures."""
    term, program = environment.get("TERM", "").lower(), environment.get("TERM_PROGRAM", "").lower()
    if not utf8 or environment.get("NO_COLOR") or term in ("", "dumb", "linux"):
        return ""
    is_direct = not environment.get("TMUX") and not environment.get("STY")
    if is_direct and (term == "xterm-kitty" or environment.get("KITTY_WINDOW_ID") or program in KITTY):
        return "kitty"
    if is_direct and (program in SIXEL or term.startswith(SIXEL)):
        return "sixel"
    return "cells" if environment.get("COLORTERM") in ("truecolor", "24bit") else ""


class PictureDialog(Dialog):
    """Shows *images*, one at a time; *read* returns the content of one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "previous", show=False),
        Binding("right", "turn(1)", "next", show=False),
    ]

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        images: Sequence[PromptImage],
        read: Callable[[PromptImage], Awaitable[bytes]],
    ) -> None:
        super().__init__(look, keys)
        self.images, self._read = images, read
        self.shown = 0
        self.title_text = "Picture"
        self.frame = Container(id="picture")
        self.caption = Sentences(look, id="picture-caption")

    def inside(self) -> Iterable[Widget]:
        yield self.frame
        yield self.caption

    def on_mount(self) -> None:
        turn = (("left right", "other pictures"),) if len(self.images) > 1 else ()
        self.offer(*turn, ("esc", "close"))
        self.begin(None)
        self.run_worker(self._show(), exclusive=True)

    def action_turn(self, by: int) -> None:
        self.shown = (self.shown + by) % len(self.images)
        self.run_worker(self._show(), exclusive=True)

    async def _show(self) -> None:
        image = self.images[self.shown]
        number = f"{self.shown + 1}/{len(self.images)}  " if len(self.images) > 1 else ""
        named = f"{number}{clean_line(image.name)}  {describe(image)}"
        protocol = find_protocol(os.environ, utf8=self.look.utf8)
        why = "This terminal shows no pictures."
        widget: Widget | None = None
        if protocol:
            try:
                size = self.app.size
                space = (max(self._columns() - 2, 8), max(size.height - 12, 4))
                content = await self._read(image)
                if protocol == "cells":
                    widget = HalfCells(await asyncio.to_thread(_decode_cells, content, space, self.app.console))
                else:
                    limit = (space[0] * CELL_PIXELS[0], space[1] * CELL_PIXELS[1])
                    widget = _build_widget(protocol, await asyncio.to_thread(_decode, content, limit), space)
                why = ""
            except ImportError:
                why = MISSING
            except KasmonError as error:
                why = error.message
        await self.frame.remove_children()
        if widget is not None:
            self.frame.styles.height = widget.styles.height
            await self.frame.mount(widget)
        self.frame.display = widget is not None
        self.caption.say((named, Token.TEXT), *(((why, Token.FAINT),) if why else ()))


def _decode(content: bytes, limit: tuple[int, int]) -> "Image":
    """Return the picture, scaled down to *limit*, in pixels. Raises `KasmonError` or `ImportError`."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # Pillow warns at its own limit; ours is below, and counts reduced photos as they are
    try:
        picture = Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "GIF", "WEBP"))
        picture.draft("RGB", limit)
        is_too_large = picture.width * picture.height > DECODED_PIXELS
        if not is_too_large:
            picture.thumbnail(limit, Image.Resampling.BOX, reducing_gap=2.0)
            return ImageOps.exif_transpose(picture).convert("RGB")
    except UnidentifiedImageError as error:
        raise KasmonError("the picture cannot be shown: its file is broken.") from error
    except Exception as error:  # a broken file raises whatever the reader of its kind ran into
        why = clean_line(str(error)).rstrip(".") or type(error).__name__
        raise KasmonError(f"the picture cannot be shown: {why}.") from error
    raise KasmonError(f"the picture is not shown: it has more than {DECODED_PIXELS // 1_000_000} million pixels.")


def _decode_cells(content: bytes, space: tuple[int, int], console: "Console") -> list[Strip]:
    """Return the rows of the picture in *space*, in cells: two pixels a cell.

    Each row is printed once for *console* here, in a thread: this computes the escape sequences of its colours.

    Raises:
        KasmonError, ImportError: as `_decode` raises.
    """
    columns, rows = space
    picture = _decode(content, (columns, rows * 2))
    width, height = picture.size
    pixels = picture.tobytes()
    styles, strips = dict[bytes, Style](), list[Strip]()
    for top in range(0, height, 2):
        upper = pixels[top * width * 3 : (top + 1) * width * 3]
        lower = pixels[(top + 1) * width * 3 : (top + 2) * width * 3] or upper
        cells = (upper[at : at + 3] + lower[at : at + 3] for at in range(0, width * 3, 3))
        segments = []
        for colours, run in groupby(cells):
            style = styles.get(colours)
            if style is None:
                style = styles[colours] = Style(
                    color=Color.from_rgb(*colours[:3]), bgcolor=Color.from_rgb(*colours[3:])
                )
            segments.append(Segment("▀" * len([*run]), style))
        strips.append(Strip(segments, width))
        strips[-1].render(console)
    return strips


class HalfCells(LinesOnlyMixin, Widget):
    """Shows a picture by half cells. textual-image's own widget takes ten times as long to draw."""

    def __init__(self, rows: Sequence[Strip]) -> None:
        super().__init__()
        self.rows = rows
        self.styles.width, self.styles.height = rows[0].cell_length, len(rows)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self.rows[y].adjust_cell_length(width) if y < len(self.rows) else Strip.blank(width)


def _build_widget(protocol: Protocol, picture: "Image", space: tuple[int, int]) -> Widget:
    """Return the widget that shows *picture* in *space*, in cells. Raises `ImportError` without textual-image."""
    terminal, sys.__stdout__ = sys.__stdout__, io.TextIOWrapper(io.BytesIO())  # type: ignore[misc]  # so that it asks no terminal
    try:
        from textual_image import widget
    finally:
        sys.__stdout__ = terminal  # type: ignore[misc]
    columns, rows = space
    width = min(columns, max(1, picture.width // CELL_PIXELS[0]), rows * 2 * picture.width // max(picture.height, 1))
    shown: Widget = (widget.TGPImage if protocol == "kitty" else widget.SixelImage)(picture)
    shown.styles.width = max(width, 1)
    shown.styles.height = max(1, round(width * picture.height / max(picture.width, 1) / 2))
    return shown
