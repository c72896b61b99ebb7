"""Encode keys as bytes: from a modern terminal's forms to those that every program in a pane understands.

Legacy bytes reach a pane unchanged. Kitty's `CSI code ; modifiers u` and xterm's `CSI 27 ; modifiers ; code ~` become
their legacy form if there is one. Others (Shift+Enter, Ctrl+Enter, Ctrl+1) pass unchanged, since the user has set up
the terminal to send them. Releases, bare modifiers and keys with Super are dropped.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

SHIFT, ALT, CTRL, SUPER, HYPER, META, CAPS_LOCK, NUM_LOCK = (1 << bit for bit in range(8))
RELEASED = b"3"

_KITTY = re.compile(
    rb"\x1b\[(?P<code>\d{1,7})(?::(?P<shifted>\d{0,7}))?(?::(?P<base>\d{0,7}))?"
    rb"(?:;(?P<modifiers>\d{0,4})(?::(?P<event>\d))?)?(?:;(?P<text>[\d:]{0,64}))?u"
)
_OTHER = re.compile(rb"\x1b\[27;(?P<modifiers>\d{1,4});(?P<code>\d{1,7})~")
_FUNCTION_KEY = re.compile(rb"\x1b\[(?P<code>\d{2});(?P<modifiers>\d{1,4})(?::(?P<event>\d))?~")
_WITH_EVENT = re.compile(rb"(\x1b\[[\d;]*):(\d)([A-HPQS~])")
_CURSOR = re.compile(rb"\x1b\[([ABCDHF])")

ESCAPE, TAB, ENTER, BACKSPACE = 27, 9, 13, 127
_KEYPAD = {57399 + digit: str(digit).encode() for digit in range(10)}
_KEYPAD |= dict(zip(range(57409, 57417), (b".", b"/", b"*", b"-", b"+", b"\r", b"=", b","), strict=True))
_FUNCTION = {57376: 25, 57377: 26, 57378: 28, 57379: 29, 57380: 31, 57381: 32, 57382: 33, 57383: 34}
_FUNCTION |= {57421: 5, 57422: 6, 57425: 2, 57426: 3}
"""Keys that have a number before `~`: F13 to F20 and four of the keypad."""
_LETTER = {57417: "D", 57418: "C", 57419: "A", 57420: "B", 57423: "H", 57424: "F", 57427: "E"}
"""Keys that end in a letter: the keypad's arrows, Home, End and middle."""
_PRIVATE = range(57344, 63744)
_CONTROL = {
    ord(key): byte
    for key, byte in zip(
        " @2[3\\4]5^6~_7/?8", b"\0\0\0\x1b\x1b\x1c\x1c\x1d\x1d\x1e\x1e\x1e\x1f\x1f\x1f\x7f\x7f", strict=True
    )
}
_CONTROL |= {ord("a") + at: at + 1 for at in range(26)}
_HOME_AND_END = {b"H": b"\x1b[1~", b"F": b"\x1b[4~"}


def to_legacy(sequence: bytes) -> bytes:
    """Return what a pane gets for one key *sequence*; empty for a key that is dropped."""
    if match := _KITTY.fullmatch(sequence):
        return _from_kitty(match, sequence)
    if match := _OTHER.fullmatch(sequence):
        return _encode_legacy(int(match["code"]), _bits(match["modifiers"]), sequence)
    if match := _WITH_EVENT.fullmatch(sequence):
        return b"" if match[2] == RELEASED else match[1] + match[3]
    return sequence


def to_application(sequence: bytes) -> bytes:
    """Return *sequence* for a program that enabled application cursor keys, as tmux itself would send it."""
    match = _CURSOR.fullmatch(sequence)
    if match is None:
        return sequence
    return _HOME_AND_END.get(match[1], b"\x1bO" + match[1])


def _bits(modifiers: bytes | None) -> int:
    return max(int(modifiers or 1) - 1, 0) & ~(CAPS_LOCK | NUM_LOCK)


def _from_kitty(match: re.Match[bytes], sequence: bytes) -> bytes:
    if match["event"] == RELEASED:
        return b""
    bits = _bits(match["modifiers"])
    if match["text"] and not bits & ~SHIFT:
        codes = (int(code) for code in match["text"].split(b":") if code)
        return "".join(chr(code) for code in codes if code < 0x110000).encode("utf-8", "ignore")
    code = int(match["code"])
    if bits & SHIFT and match["shifted"]:
        return _encode_legacy(int(match["shifted"]), bits & ~SHIFT, sequence)
    return _encode_legacy(code, bits, sequence)


def _encode_legacy(code: int, bits: int, sequence: bytes) -> bytes:
    """Return the legacy bytes of the key *code* with these modifiers; *sequence* itself if there are none."""
    if bits & (SUPER | HYPER | META) or code >= 0x110000:
        return b""
    if code in _PRIVATE:
        return _encode_named_key(code, bits)
    if code in (ENTER, TAB, ESCAPE, BACKSPACE):
        plain = _encode_editing_key(code, bits)
    elif bits & CTRL:
        control = _CONTROL.get(code | 0x20 if ord("A") <= code <= ord("Z") else code)
        plain = None if control is None else bytes((control,))
    else:
        plain = (chr(code).upper() if bits & SHIFT else chr(code)).encode("utf-8", "ignore")
    if plain is None:
        return sequence
    return b"\x1b" + plain if bits & ALT else plain


def _encode_editing_key(code: int, bits: int) -> bytes | None:
    """Return the bytes of Enter, Tab, Escape or Backspace with Shift or Ctrl; None without a legacy form."""
    if code == TAB and bits & (SHIFT | CTRL) == SHIFT:
        return b"\x1b[Z"
    if code == BACKSPACE:
        return b"\x08" if bits & CTRL else b"\x7f"
    if code in (ENTER, TAB) and bits & (SHIFT | CTRL):
        return None
    return bytes((code,))


def _encode_named_key(code: int, bits: int) -> bytes:
    if code in _KEYPAD:
        return b"\x1b" + _KEYPAD[code] if bits & ALT else _KEYPAD[code]
    if code in _FUNCTION:
        return (f"\x1b[{_FUNCTION[code]};{bits + 1}~" if bits else f"\x1b[{_FUNCTION[code]}~").encode()
    if code in _LETTER:
        return (f"\x1b[1;{bits + 1}{_LETTER[code]}" if bits else f"\x1b[{_LETTER[code]}").encode()
    return b""


_SIGNS = {"left_square_bracket": "[", "backslash": "\\", "right_square_bracket": "]", "circumflex_accent": "^"}
_SIGNS |= {"underscore": "_", "at": "@", "space": " "}
_F_KEYS = {1: b"\x1bOP", 2: b"\x1bOQ", 3: b"\x1bOR", 4: b"\x1bOS"}
_F_KEYS |= {number: b"\x1b[%d~" % code for number, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)}
LEAVING: Final = frozenset("abcdefgklnopqrstuvwxyz\\]^_@ ")
"""Keys allowed with Ctrl: not H, I, J, M and [, which are Backspace, Tab, a new line, Enter and Escape."""


class ReservedKey(msgspec.Struct, frozen=True):
    """A key that is never sent to a pane."""

    name: str
    """Its display name, such as `Ctrl+]`."""
    legacy: bytes
    code: int | None = None
    """Its Unicode code point with Ctrl in kitty's and xterm's forms; None for a function key."""

    def pressed_by(self, sequence: bytes) -> bool:
        """Whether *sequence* is a press of this key, in any form."""
        if sequence == self.legacy:
            return True
        if (function := _FUNCTION_KEY.fullmatch(sequence)) is not None:
            plain = b"\x1b[%s~" % function["code"]
            return plain == self.legacy and not _bits(function["modifiers"]) and function["event"] != RELEASED
        match = _KITTY.fullmatch(sequence) or _OTHER.fullmatch(sequence)
        if match is None or self.code is None or _bits(match["modifiers"]) != CTRL:
            return False
        named = match.groupdict()
        return str(self.code).encode() in (named["code"], named.get("base")) and named.get("event") != RELEASED


def leave_key(name: str) -> ReservedKey:
    """Return the key that `[keys] leave_focus` names: `ctrl+` and a letter or sign, or `f1` to `f12`.

    Raises:
        ValueError: for anything else, also for Ctrl with a letter that is Escape, Enter, Tab or Backspace.
    """
    head, _, tail = name.strip().lower().rpartition("+")
    key = _SIGNS.get(tail, tail)
    if head == "ctrl" and key in LEAVING:
        return ReservedKey(f"Ctrl+{key.upper()}", bytes((_CONTROL[ord(key)],)), ord(key))
    if not head and key[:1] == "f" and key[1:].isdecimal() and int(key[1:]) in _F_KEYS:
        return ReservedKey(key.upper(), _F_KEYS[int(key[1:])])
    raise ValueError(f"{name!r} cannot leave the focus: choose ctrl+ with a letter or one of \\ ] ^ _, or f1 to f12")


def leave_keys(names: Sequence[str]) -> tuple[ReservedKey, ...]:
    """Return the keys that `[keys] leave_focus` names.

    Raises:
        ValueError: if it names none, or one as in `leave_key`.
    """
    if not names:
        raise ValueError("a focused terminal needs a key to leave it")
    return tuple(map(leave_key, names))


CTRL_BRACKET: Final = leave_key("ctrl+]")
LEAVE_KEYS: Final = (CTRL_BRACKET, leave_key("f12"))
"""The second one is for keyboards on which Ctrl and `]` cannot be combined."""


_KEYS = {"enter": b"\r", "escape": b"\x1b", "tab": b"\t", "shift+tab": b"\x1b[Z", "backspace": b"\x7f", "space": b" "}
_LETTERS = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
_NUMBERS = {"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6}


def encode_key(key: str, character: str | None) -> bytes:
    """Return the bytes of a Textual key, for use without a tap (a browser, a test); empty if it has none."""
    *modifiers, name = key.split("+") if key != "+" else [key]
    bits = SHIFT * ("shift" in modifiers) | ALT * ("alt" in modifiers) | CTRL * ("ctrl" in modifiers)
    if name in _LETTERS:
        return (f"\x1b[1;{bits + 1}{_LETTERS[name]}" if bits else f"\x1b[{_LETTERS[name]}").encode()
    if name in _NUMBERS:
        return (f"\x1b[{_NUMBERS[name]};{bits + 1}~" if bits else f"\x1b[{_NUMBERS[name]}~").encode()
    if name[:1] == "f" and name[1:].isdecimal():
        return _F_KEYS.get(int(name[1:]), b"")
    sign = _SIGNS.get(name, name)
    if bits & CTRL and len(sign) == 1 and ord(sign) in _CONTROL:
        plain = bytes((_CONTROL[ord(sign)],))
    else:
        plain = _KEYS.get(key) or _KEYS.get(name) or (character or (sign if len(sign) == 1 else "")).encode()
    return b"\x1b" + plain if bits & ALT and plain else plain
