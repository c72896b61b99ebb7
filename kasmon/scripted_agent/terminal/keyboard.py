"""Parses terminal input into keys. Sans-IO."""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

PASTE_BEGINS: Final = b"\x1b[200~"
PASTE_ENDS: Final = b"\x1b[201~"
CSI: Final = re.compile(rb"\x1b\[([0-?]*)[ -/]*([@-~])")
STRING: Final = re.compile(rb"\x1b[\]P_^X].*?(?:\x07|\x1b\\)", re.DOTALL)
"""A terminal's answer to a query, ignored here."""
LONGEST_STRING: Final = 4096
FINALS: Final = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end"}
TILDES: Final = {1: "home", 3: "delete", 4: "end", 5: "page-up", 6: "page-down", 7: "home", 8: "end"}
CONTROLS: Final = {
    "\r": "enter",
    "\n": "newline",
    "\x01": "home",
    "\x03": "ctrl-c",
    "\x04": "ctrl-d",
    "\x05": "end",
    "\x08": "backspace",
    "\x0b": "ctrl-k",
    "\x15": "ctrl-u",
    "\x17": "ctrl-w",
    "\x1b": "escape",
    "\x7f": "backspace",
}


class Key(NamedTuple):
    """One key; `text` where the name is `text` or `paste`."""

    name: str
    text: str = ""


class Keyboard:
    """Parses bytes into keys and stores incomplete input."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._searched = 0

    @property
    def waits(self) -> bool:
        """Whether an ESC is pending that may be a key of its own or the beginning of another."""
        return self._pending.startswith(b"\x1b") and not self._pending.startswith(PASTE_BEGINS)

    def feed(self, data: bytes) -> Iterator[Key]:
        self._pending += data
        while self._pending:
            taken = self._next_keys()
            if taken is None:
                return
            yield from taken

    def give_up_waiting(self) -> Iterator[Key]:
        """Treat a pending ESC as the Escape key, and parse the bytes after it separately."""
        if self.waits:
            del self._pending[:1]
            yield Key("escape")
            yield from self.feed(b"")

    def _next_keys(self) -> list[Key] | None:
        """Return the next keys; None if more input is needed first."""
        pending = self._pending
        if pending.startswith(PASTE_BEGINS):
            return self._pop_paste()
        if pending[0] != 0x1B:
            return self._pop_text()
        if len(pending) == 1 or PASTE_BEGINS.startswith(pending):
            return None
        second = bytes(pending[1:2])
        if second == b"\x1b":
            del pending[:1]
            return [Key("escape")]
        if second in (b"\r", b"\n"):
            del pending[:2]
            return [Key("newline")]
        if second == b"O" and len(pending) > 2:
            name = FINALS.get(bytes(pending[2:3]))
            del pending[:3]
            return [Key(name)] if name else []
        if second == b"[":
            return self._sequence(CSI.match(pending))
        if second in (b"]", b"P", b"_", b"^", b"X"):
            return self._sequence(STRING.match(pending), LONGEST_STRING)
        if second == b"O":
            return None
        del pending[:2]  # Alt with a letter is ignored
        return []

    def _sequence(self, match: re.Match[bytes] | None, longest: int = 64) -> list[Key] | None:
        if match is None:
            if len(self._pending) <= longest:
                return None
            self._pending.clear()  # a sequence without an end: noise
            return []
        name = _parse_named(match[1], match[2]) if match.re is CSI else None
        del self._pending[: match.end()]  # after `_parse_named`: a match reads its groups lazily from the buffer
        return [Key(name)] if name else []

    def _pop_paste(self) -> list[Key] | None:
        end = self._pending.find(PASTE_ENDS, max(len(PASTE_BEGINS), self._searched))
        if end < 0:
            self._searched = len(self._pending) - len(PASTE_ENDS)
            return None
        text = bytes(self._pending[len(PASTE_BEGINS) : end]).decode("utf-8", "replace")
        del self._pending[: end + len(PASTE_ENDS)]
        self._searched = 0
        return [Key("paste", text.replace("\r\n", "\n").replace("\r", "\n"))]

    def _pop_text(self) -> list[Key]:
        end = self._pending.find(b"\x1b")
        end = len(self._pending) if end < 0 else end
        text = self._utf8.decode(bytes(self._pending[:end]))
        del self._pending[:end]
        keys: list[Key] = []
        for part in re.split(r"([\x00-\x1f\x7f])", text):
            if part and (part in CONTROLS or part < " "):
                keys += [Key(CONTROLS[part])] if part in CONTROLS else []
            elif part:
                keys.append(Key("text", part))
        return keys


def _parse_named(parameters: bytes, final: bytes) -> str | None:
    """Return the key of a control sequence: cursor keys, and keys with modifiers in kitty's and xterm's encoding."""
    is_plain = re.fullmatch(rb"[0-9:;]{1,40}", parameters) is not None
    numbers = [int(part.split(b":")[0] or b"0") for part in parameters.split(b";")] if is_plain else []
    if final in FINALS:
        return FINALS[final]
    if final == b"~" and numbers[:1] == [27] and len(numbers) == 3:
        return _parse_modified(numbers[2], numbers[1])
    if final == b"~" and numbers:
        return TILDES.get(numbers[0])
    if final == b"u" and numbers:
        return _parse_modified(numbers[0], numbers[1] if len(numbers) > 1 else 1)
    return None


def _parse_modified(code: int, modifiers: int) -> str | None:
    if code == 13:
        return "newline" if modifiers > 1 else "enter"
    if (modifiers - 1) & 4 and ord("a") <= code <= ord("z"):
        return CONTROLS.get(chr(code - ord("a") + 1))
    return CONTROLS.get(chr(code)) if code in (27, 127) else None
