"""Route every byte of stdin while a terminal has the focus: to the pane, to Textual, or nowhere. Sans-IO.

Keys pass unchanged (`key_encoding.py` converts modern forms). Three kinds stay with the dashboard: the leave keys;
Shift with PageUp, PageDown and Home, and the wheel, if the program does not use them. Replies of the terminal never
reach an agent: focus, mode and size reports go to Textual, every other reply is dropped, even in pieces. A bracketed
paste is passed on whole; a leave key inside it is only text.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from kasmon.host.rpc.frames import TerminalModes
from kasmon.tui.terminal.key_encoding import LEAVE_KEYS, ReservedKey, to_application, to_legacy

RELEASE, MOVED, WHEEL = 3, 32, 64
X10_CELLS = 223
"""The last column or row that the old form can encode."""

MOUSE_REPORT = re.compile(rb"\x1b\[<(\d{1,4});(-?\d{1,6});(-?\d{1,6})([Mm])")


class MouseReport(NamedTuple):
    """One report; cells count from 0."""

    button: int
    """xterm's number: the button in its lowest two bits, then 4 Shift, 8 Meta, 16 Ctrl, 32 moved, 64 wheel."""
    x: int
    y: int
    up: bool = False

    @property
    def wheel(self) -> bool:
        return bool(self.button & WHEEL)

    @property
    def motion(self) -> bool:
        return bool(self.button & MOVED) and not self.wheel

    @property
    def dragged(self) -> bool:
        return self.motion and self.button & 3 != RELEASE


def read_mouse(match: re.Match[bytes], cell: tuple[float, float] = (1.0, 1.0)) -> MouseReport:
    """Return the report that `MOUSE_REPORT` matched; *cell* is a cell's width and height in the terminal's units."""
    width, height = cell
    x, y = (int(match[2]) - 1) / width, (int(match[3]) - 1) / height
    return MouseReport(int(match[1]), int(x // 1), int(y // 1), match[4] == b"m")


def accepts_mouse(report: MouseReport, modes: TerminalModes) -> bool:
    """Whether a program in these modes wants *report*."""
    match modes.mouse:
        case "all":
            return True
        case "button":
            return report.dragged or not report.motion
        case "standard":
            return not report.motion
        case _:
            return False


def encode_mouse(report: MouseReport, modes: TerminalModes) -> bytes:
    """Encode *report* for the program: SGR, or the old form, which is empty if a coordinate is too large."""
    if modes.mouse_sgr:
        return b"\x1b[<%d;%d;%d%c" % (report.button, report.x + 1, report.y + 1, b"m" if report.up else b"M")
    if report.x >= X10_CELLS or report.y >= X10_CELLS or report.button > X10_CELLS:
        return b""
    button = report.button | RELEASE if report.up else report.button
    return b"\x1b[M%c%c%c" % (32 + button, 33 + report.x, 33 + report.y)


HOLD_S: Final = 0.01
"""How long the possible beginning of a sequence waits for its rest; this delays the Escape key."""
STALL_S: Final = 1.0
"""How long to wait for the rest of an incomplete reply or paste, in seconds."""
STRING_BYTES: Final = 64 * 1024
"""A longer reply of the terminal is discarded."""
PASTE_BYTES: Final = 8 * 1024 * 1024
"""A longer paste is split."""
WHEEL_LINES: Final = 3

SHIFT_HOME: Final = b"\x1b[1;2H"
PASTE, PASTE_END = b"\x1b[200~", b"\x1b[201~"
_CSI = re.compile(rb"\x1b\[([0-?]*)([ -/]*)([@-~])")
_OLD_MOUSE = re.compile(rb"\x1b\[(?:M[ -\xff]{3}|\d+;\d+;\d+M)")
_OLD_MOUSE_SO_FAR = re.compile(rb"\x1b\[M[ -\xff]{0,2}")
_SS3 = re.compile(rb"\x1bO[ -~]")
_STRING = re.compile(rb"\x1b(?:\]\d{1,4};[^\x07\x1b]*(?:\x07|\x1b\\)|(?:P[0-9>!]{0,2}[$+|]|_G)[^\x1b]*\x1b\\)")
_STRING_SO_FAR = re.compile(rb"\x1b(?:\]\d{1,4};[^\x07\x1b]*\x1b?|(?:P[0-9>!]{1,2}(?:[$+|][^\x1b]*)?|_G[^\x1b]*)\x1b?)")
_CSI_SO_FAR = re.compile(rb"\x1b\[[0-?]+[ -/]*")
_OPENINGS = frozenset(
    (b"\x1b", b"\x1b[", b"\x1bO", b"\x1b]", b"\x1bP", b"\x1b_", *(b"\x1b]%d" % n for n in range(100)))
)
"""Sequences that are either one key or the beginning of something longer."""
_UNSAFE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")


class StdinSink(Protocol):
    """Receives the routed input. Called on the thread that reads stdin."""

    def send_keys(self, data: bytes) -> None: ...

    def paste(self, text: str) -> None: ...

    def scroll(self, lines: int) -> None:
        """Scroll back in the history by *lines*; forward if negative."""

    def read(self) -> None:
        """Open the scrollback, to read, search and copy."""

    def leave(self) -> None: ...


class FocusGeometry(msgspec.Struct, frozen=True):
    """Where the terminal is on the screen, and its program's modes; replaced as a whole."""

    x: int = 0
    y: int = 0
    width: int = 0
    height: int = 0
    left: int = 0
    top: int = 0
    """The pane's column and row in the top left corner."""
    modes: TerminalModes = msgspec.field(default_factory=TerminalModes)
    scrolled: int = 0


class StdinTap:
    """Accepts stdin's bytes in reads of any size; sends the pane's part to the sink, returns Textual's part."""

    def __init__(self, sink: StdinSink, leave: Sequence[ReservedKey] = LEAVE_KEYS) -> None:
        self.aim = FocusGeometry()
        self.cell = (1.0, 1.0)
        """A cell's width and height in mouse units: cells, or pixels if Textual enabled these."""
        self.left = False
        """A leave key was pressed: from now on all input is Textual's."""
        self._sink, self._leave = sink, tuple(leave)
        self._leave_bytes = tuple(key.legacy for key in self._leave if len(key.legacy) == 1)
        self._pending = b""
        self._keys = bytearray()
        self._textual_bytes = bytearray()
        self._paste: bytearray | None = None
        self._grabbed_by_pane: bool | None = None
        """The owner of a held mouse button: true the pane, false Textual, None if no button is held."""

    @property
    def hold_s(self) -> float | None:
        """If nothing comes for this long, call `settle`; None while nothing is pending."""
        if self._paste is not None:
            return STALL_S
        return None if not self._pending else HOLD_S if self._pending in _OPENINGS else STALL_S

    def feed(self, data: bytes) -> bytes:
        """Send on what *data* completes; return Textual's part, which is everything after a leave key."""
        if self.left:
            return data
        data, self._pending = self._pending + data, b""
        at = 0
        while at < len(data) and not self.left:
            if self._paste is not None:
                at = self._handle_paste(data, at)
            elif data[at] == 0x1B:
                at = self._handle_sequence(data, at)
            else:
                at = self._handle_text(data, at)
        self._flush()
        ours, self._textual_bytes = bytes(self._textual_bytes) + data[at:], bytearray()
        return ours

    def settle(self) -> None:
        """Resolve what is pending, because nothing came for `hold_s`: it was no beginning, or its end is lost."""
        pending, self._pending = self._pending, b""
        if self._paste is not None:
            self._paste += pending
            self._finish_paste()
        elif pending in _OPENINGS or (_CSI_SO_FAR.fullmatch(pending) and pending[2] not in b"<=>?"):
            self._keys += pending
        self._flush()

    def _handle_text(self, data: bytes, at: int) -> int:
        end = data.find(b"\x1b", at)
        end = len(data) if end < 0 else end
        leave = min((found for byte in self._leave_bytes if (found := data.find(byte, at, end)) >= 0), default=-1)
        if leave < 0:
            self._keys += data[at:end]
            return end
        self._keys += data[at:leave]
        self._leave_focus()
        return leave + 1

    def _handle_sequence(self, data: bytes, at: int) -> int:
        if data.startswith(PASTE, at):
            self._flush()
            self._paste = bytearray()
            return at + len(PASTE)
        if match := _OLD_MOUSE.match(data, at):
            return match.end()
        if _OLD_MOUSE_SO_FAR.fullmatch(data, at):
            self._pending = data[at:]
            return len(data)
        if match := _CSI.match(data, at):
            self._handle_csi(match)
            return match.end()
        if match := _SS3.match(data, at):
            self._handle_key(match[0])
            return match.end()
        if match := _STRING.match(data, at):
            return match.end()
        rest = data[at:]
        if rest in _OPENINGS or _CSI_SO_FAR.fullmatch(rest):
            self._pending = rest
            return len(data)
        if _STRING_SO_FAR.fullmatch(rest):
            self._pending = rest if len(rest) <= STRING_BYTES else rest[:8] + rest[-1:]
            return len(data)
        self._keys += b"\x1b"
        return at + 1

    def _handle_csi(self, match: re.Match[bytes]) -> None:
        sequence, parameters, between, final = match[0], match[1], match[2], match[3]
        if report := MOUSE_REPORT.fullmatch(sequence):
            self._handle_mouse(read_mouse(report, self.cell), sequence)
        elif sequence in (b"\x1b[I", b"\x1b[O") or (between, final) == (b"$", b"y"):
            self._textual_bytes += sequence
        elif final == b"t" and parameters:
            self._textual_bytes += sequence if parameters.startswith(b"48;") else b""
        elif parameters[:1] not in (b"<", b"=", b">", b"?") and not _is_reply(parameters, final):
            self._handle_key(sequence)

    def _handle_key(self, sequence: bytes) -> None:
        aim = self.aim
        if any(key.pressed_by(sequence) for key in self._leave):
            self._leave_focus()
        elif sequence in (b"\x1b[5;2~", b"\x1b[6;2~") and not aim.modes.alternate:
            self._flush()
            page = max(aim.height - 1, 1)
            self._sink.scroll(page if sequence[2:3] == b"5" else -page)
        elif sequence == SHIFT_HOME and not aim.modes.alternate:
            self._flush()
            self._sink.read()
        elif aim.modes.cursor_keys:
            self._keys += to_application(to_legacy(sequence))
        else:
            self._keys += to_legacy(sequence)

    def _handle_mouse(self, report: MouseReport, sequence: bytes) -> None:
        """Route a mouse report. A button belongs to the area where it was pressed until its release."""
        aim = self.aim
        is_inside = 0 <= report.x - aim.x < aim.width and 0 <= report.y - aim.y < aim.height
        if report.wheel and is_inside and (aim.scrolled or not aim.modes.mouse):
            self._handle_wheel(report)
            return
        free = report.wheel or self._grabbed_by_pane is None
        panes = is_inside and bool(aim.modes.mouse) if free else bool(self._grabbed_by_pane)
        if not report.wheel and not report.motion:
            self._grabbed_by_pane = None if report.up else panes
        if not panes:
            self._textual_bytes += sequence
        elif accepts_mouse(report, aim.modes):
            column = min(max(report.x - aim.x, 0), max(aim.width - 1, 0)) + aim.left
            row = min(max(report.y - aim.y, 0), max(aim.height - 1, 0)) + aim.top
            self._keys += encode_mouse(report._replace(x=column, y=row), aim.modes)

    def _handle_wheel(self, report: MouseReport) -> None:
        """Handle the wheel if the program does not: arrow keys on the alternate screen, else scrollback."""
        if report.button & 3 > 1:
            return
        up = not report.button & 1
        if self.aim.modes.alternate and not self.aim.scrolled:
            arrow = b"\x1b[A" if up else b"\x1b[B"
            self._keys += (to_application(arrow) if self.aim.modes.cursor_keys else arrow) * WHEEL_LINES
        else:
            self._flush()
            self._sink.scroll(WHEEL_LINES if up else -WHEEL_LINES)

    def _handle_paste(self, data: bytes, at: int) -> int:
        assert self._paste is not None
        end = data.find(PASTE_END, at)
        if end >= 0:
            self._paste += data[at:end]
            self._finish_paste()
            return end + len(PASTE_END)
        keep = next((size for size in range(len(PASTE_END) - 1, 0, -1) if data.endswith(PASTE_END[:size])), 0)
        keep = min(keep, len(data) - at)
        self._paste += data[at : len(data) - keep]
        self._pending = data[len(data) - keep :] if keep else b""
        if len(self._paste) > PASTE_BYTES:
            self._finish_paste()
            self._paste = bytearray()
        return len(data)

    def _finish_paste(self) -> None:
        """Send the text by tmux's own paste, which brackets it if the program enabled that.

        A paste with an escape, a NUL or invalid UTF-8 is sent byte for byte in its brackets: tmux 3.7 would rewrite it.
        So is an empty one, by which some agents detect a picture on the clipboard.
        """
        pasted, self._paste = bytes(self._paste or b""), None
        try:
            text = pasted.decode()
        except UnicodeDecodeError:
            text = "\0"
        if not text or _UNSAFE.search(text):
            self._sink.send_keys(PASTE + pasted + PASTE_END)
        else:
            self._sink.paste(text)

    def _leave_focus(self) -> None:
        self._flush()
        self.left = True
        self._sink.leave()

    def _flush(self) -> None:
        if self._keys:
            keys, self._keys = bytes(self._keys), bytearray()
            self._sink.send_keys(keys)


def _is_reply(parameters: bytes, final: bytes) -> bool:
    """Whether an unmarked sequence is the terminal's reply to a query: status, position, or settings."""
    numbers = parameters.split(b";")
    match final:
        case b"n":
            return bool(parameters)
        case b"R":  # `CSI 1 ; m R` is F3 with modifiers; the position was not queried
            return len(numbers) == 2 and numbers[0] != b"1"
        case b"x":
            return len(numbers) >= 4
        case _:
            return False
