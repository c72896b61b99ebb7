"""Requests to tmux as values: the line to send, how many answers it produces, and the reader of those answers.

Every line for the control client is built here, from checked ids, hex and quoted words.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kasmon.errors import PaneDeadError, PasteRefusedError, ScreenChangedError, TmuxCommandError
from kasmon.tmux import formats
from kasmon.tmux.quoting import escape_format, exact, own_name, quote_text

Answer = TypeVar("Answer")
AnswerLines = list[bytes]

KEY_BYTES = 256
"""The most bytes in one `send-keys -H`: more makes tmux slow."""


@dataclass(frozen=True, slots=True)
class TmuxRequest(Generic[Answer]):
    line: str
    blocks: int
    """How many answers the line produces, one per command; a failed answer is the last."""
    read: Callable[[Sequence[AnswerLines]], Answer]
    """Raises a `KasmonError` where the answer is a refusal."""
    act: str = ""
    """The command that the line runs under a condition."""

    @property
    def name(self) -> str:
        """The request as an error names it."""
        return self.act.partition(" ")[0] or self.line[:200]


class PaneScreen(msgspec.Struct, frozen=True):
    facts: formats.ScreenFacts
    rows: list[bytes]
    """Top to bottom, UTF-8 with SGR, trailing spaces kept."""


class PaneHistory(msgspec.Struct, frozen=True):
    """The end of a pane's output, at one moment, as whole lines: wrapped rows are joined."""

    facts: formats.ScreenFacts
    lines: list[bytes]
    """Oldest first; the first one may lack its beginning."""
    left: int
    """How many of them have scrolled off the screen; the others are, or end, on the screen."""


class PaneRow(msgspec.Struct, frozen=True):
    facts: formats.ScreenFacts
    y: int
    row: bytes


def read_nothing(answers: Sequence[AnswerLines]) -> None:
    """Read an answer that contains no value."""


def command(line: str) -> TmuxRequest[AnswerLines]:
    """Return a request for one command, verbatim. For constants only; values go through the functions below."""
    if any(sign in line for sign in "\n\r\0") or not line.strip():
        raise ValueError(f"{line!r} is not one line with one command")
    return TmuxRequest(line, 1, lambda answers: answers[0])


def capture(pane: str, *, start: int | str = 0, ansi: bool = True, join: bool = False) -> TmuxRequest[AnswerLines]:
    """Capture *pane* from row *start* to its last: 0 is the first visible row, -1 the one above it, "-" the oldest.

    *ansi* keeps colours as SGR; *join* joins wrapped rows to one line.
    """
    options = f"{' -e' if ansi else ''}{' -J' if join else ''}"
    first = start if start == "-" else int(start)
    return TmuxRequest(f"capture-pane -p{options} -S {first} -t {exact(pane)}", 1, lambda answers: answers[0])


def screen(pane: str) -> TmuxRequest[PaneScreen]:
    """Capture all visible rows of *pane* and its `ScreenFacts`, at the same moment."""
    return TmuxRequest(
        f"capture-pane -p -e -N -t {exact(pane)} ; {_display(pane, formats.SCREEN_FORMAT)}",
        2,
        lambda answers: PaneScreen(_screen_facts(pane, answers[1]), answers[0]),
    )


def row(pane: str, y: int) -> TmuxRequest[PaneRow]:
    """Capture row *y* of *pane* (0 at the top) and its `ScreenFacts`; a quarter of the cost of all rows."""
    return TmuxRequest(
        f"capture-pane -p -e -N -S {int(y)} -E {int(y)} -t {exact(pane)} ; {_display(pane, formats.SCREEN_FORMAT)}",
        2,
        lambda answers: PaneRow(_screen_facts(pane, answers[1]), y, answers[0][0] if answers[0] else b""),
    )


def scrolled(pane: str, up: int, height: int) -> TmuxRequest[PaneScreen]:
    """Capture *height* rows of *pane*, *up* lines above its screen, and its `ScreenFacts`, at the same moment."""
    bounds = f"-S {-int(up)} -E {int(height) - 1 - int(up)}"
    return TmuxRequest(
        f"capture-pane -p -e -N {bounds} -t {exact(pane)} ; {_display(pane, formats.SCREEN_FORMAT)}",
        2,
        lambda answers: PaneScreen(_screen_facts(pane, answers[1]), answers[0]),
    )


def above(pane: str, rows: int) -> TmuxRequest[PaneHistory]:
    """Capture the last *rows* rows of the history of *pane* and its screen, as lines without colours."""

    def read(answers: Sequence[AnswerLines]) -> PaneHistory:
        everything, shown = answers[0], answers[1]
        return PaneHistory(_screen_facts(pane, answers[2]), everything, max(len(everything) - len(shown), 0))

    at = exact(pane)
    whole = f"capture-pane -p -J -S {-int(rows)} -t {at} ; capture-pane -p -J -t {at}"
    return TmuxRequest(f"{whole} ; {_display(pane, formats.SCREEN_FORMAT)}", 3, read)


def screen_facts(pane: str) -> TmuxRequest[formats.ScreenFacts]:
    """Read the size, the cursor and the modes of *pane*."""
    return TmuxRequest(_display(pane, formats.SCREEN_FORMAT), 1, lambda answers: _screen_facts(pane, answers[0]))


def pane_text(pane: str) -> TmuxRequest[formats.PaneText]:
    """Read title, directory and command of *pane*; untrusted text."""
    return TmuxRequest(
        _display(pane, formats.TEXT_FORMAT), 1, lambda answers: formats.read_text(b"\n".join(answers[0]))
    )


def all_panes() -> TmuxRequest[list[formats.PaneFacts]]:
    """List the panes of all sessions, including the hub's."""
    line = f"list-panes -a -F {quote_text(formats.PANE_FACTS_FORMAT)}"
    return TmuxRequest(
        line, 1, lambda answers: [facts for text in answers[0] if (facts := formats.read_pane_facts(text))]
    )


def keys(pane: str, data: bytes) -> list[TmuxRequest[None]]:
    """Type *data*, byte by byte, in pieces that tmux handles fast. Nothing reports whether a program read them."""
    pieces = [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]
    return [TmuxRequest(f"send-keys -t {exact(pane)} -H {piece.hex(' ')}", 1, read_nothing) for piece in pieces]


GUARD = "#{||:#{pane_dead},#{||:#{pane_in_mode},#{pane_input_off}}}"
REFUSED = "KASMON-REFUSED dead=#{pane_dead} mode=#{pane_in_mode} off=#{pane_input_off}"


def guarded(pane: str, act: str, unless: str = "") -> TmuxRequest[None]:
    """Run *act* on *pane*, unless tmux finds at that moment that the pane is dead, in a mode, or takes no input.

    A paste into a dead pane kills tmux 3.3a and with it every agent; a mode takes keys as commands.
    *unless* is a further format; *act* is refused if it is true (`screen_check.changed`).

    Reading its answer raises:
        PaneDeadError: if the pane's program has ended.
        PasteRefusedError: if the pane takes no input now.
        ScreenChangedError: if *unless* is true.
    """
    target = exact(pane)
    refuse = f"display-message -p -t {target} {quote_text(REFUSED)}"

    def read(answers: Sequence[AnswerLines]) -> None:
        reply = b" ".join(answers[1]) if len(answers) > 1 else b""
        if not reply.startswith(b"KASMON-REFUSED"):
            return
        if b"dead=1" in reply:
            raise PaneDeadError(pane)
        if unless and b"off=1" not in reply and b"mode=0" in reply:
            raise ScreenChangedError(pane)
        raise PasteRefusedError(pane, "its input is off" if b"off=1" in reply else "it shows its history (copy mode)")

    guard = f"#{{||:{GUARD},{unless}}}" if unless else GUARD
    line = f"if-shell -F -t {target} {quote_text(guard)} {quote_text(refuse)} {quote_text(act)}"
    return TmuxRequest(line, 2, read, act)


def press(pane: str, data: bytes, unless: str = "") -> TmuxRequest[None]:
    """Type at most 256 bytes into *pane*, or be refused as a whole; see `guarded`."""
    if not 0 < len(data) <= KEY_BYTES:
        raise ValueError(f"{len(data)} bytes are not a key press: 1 to 256 are allowed")
    return guarded(pane, f"send-keys -t {exact(pane)} -H {data.hex(' ')}", unless)


def typeable(pane: str) -> TmuxRequest[None]:
    """Check whether text can be typed into *pane* now; raises like `guarded`."""
    return guarded(pane, f"display-message -p -t {exact(pane)} ''")


def leave_mode(pane: str) -> TmuxRequest[None]:
    """Make *pane* leave copy mode, if it is in it."""
    target = exact(pane)
    leave = f"send-keys -X -t {target} cancel"
    stay = f"display-message -p -t {target} {quote_text('#{pane_in_mode}')}"
    return TmuxRequest(
        f"if-shell -F -t {target} {quote_text('#{pane_in_mode}')} {quote_text(leave)} {quote_text(stay)}",
        2,
        read_nothing,
    )


def paste(pane: str, buffer: str, unless: str = "") -> TmuxRequest[None]:
    """Paste *buffer* into *pane*, bracketed if the program asked for that, or be refused; see `guarded`."""
    return guarded(pane, f"paste-buffer -p -r -d -b {own_name(buffer)} -t {exact(pane)}", unless)


def last_key_at(pane: str) -> TmuxRequest[float]:
    """Read when a person last pressed a key in an attached terminal that shows *pane*; minus infinity if no terminal
    shows it. In whole seconds since the epoch."""
    template = quote_text("#{client_control_mode}|#{client_activity}|#{pane_id}")

    def read(answers: Sequence[AnswerLines]) -> float:
        fields = [line.decode("ascii", "replace").split("|") for line in answers[0]]
        shown = [each[1] for each in fields if len(each) == 3 and each[0] == "0" and each[2] == pane]
        return max((float(each) for each in shown if each.isdecimal()), default=-math.inf)

    return TmuxRequest(f"list-clients -F {template}", 1, read)


def drop_buffer(buffer: str) -> TmuxRequest[None]:
    """Delete a buffer that was not pasted."""
    return TmuxRequest(f"delete-buffer -b {own_name(buffer)}", 1, read_nothing)


def resize(window: str, width: int, height: int) -> TmuxRequest[None]:
    """Resize *window* until a client attaches, whose size then counts (`resize-window` alone would pin it)."""
    at = exact(window)
    size = f"-x {max(int(width), 1)} -y {max(int(height), 1)}"
    return TmuxRequest(f"resize-window -t {at} {size} ; set-option -wu -t {at} window-size", 2, read_nothing)


def rename(window: str, name: str) -> TmuxRequest[None]:
    """Show *name*, which a person chose, to attached clients; it is never read as a format.

    Raises:
        ValueError: if it holds a line break or a NUL.
    """
    at = exact(window)
    own, shown = quote_text(name), quote_text(escape_format(name))
    return TmuxRequest(f"set-option -w -t {at} @kasmon_name {own} ; rename-window -t {at} -- {shown}", 2, read_nothing)


def kill_window(window: str) -> TmuxRequest[None]:
    """End *window* wherever it is linked, and its program with it."""
    return TmuxRequest(f"kill-window -t {exact(window)}", 1, read_nothing)


def refused(request: "TmuxRequest[Answer]", lines: AnswerLines) -> TmuxCommandError:
    return TmuxCommandError(request.name, b" ".join(lines).decode("utf-8", "replace") or "it gives no reason")


def _display(pane: str, template: str) -> str:
    return f"display-message -p -t {exact(pane)} {quote_text(template)}"


def _screen_facts(pane: str, lines: AnswerLines) -> formats.ScreenFacts:
    facts = formats.read_screen(lines[0]) if lines else None
    if facts is None:
        raise TmuxCommandError("display-message", f"there is no pane {pane}")
    return facts
