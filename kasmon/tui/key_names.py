"""Names of keys: as users write them, as Textual names them, and as they are shown."""

import re
import unicodedata
from typing import Final

_NAMED: Final = {
    "enter": "⏎", "escape": "esc", "space": "space", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "pageup": "pgup", "pagedown": "pgdn", "comma": ",", "question_mark": "?", "slash": "/",
}  # fmt: skip
_SIGNS: Final = {
    "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{", "right_curly_bracket": "}",
    "less_than_sign": "<", "greater_than_sign": ">",
}  # fmt: skip
_MODIFIERS: Final = ("ctrl", "alt", "shift", "super", "meta")
_KNOWN_NAMES: Final = frozenset(
    [
        "enter",
        "escape",
        "space",
        "tab",
        "backspace",
        "delete",
        "insert",
        "home",
        "end",
        "pageup",
        "pagedown",
        "up",
        "down",
        "left",
        "right",
    ]
) | {f"f{n}" for n in range(1, 25)}


_SENT_AS: Final = {"[": "escape", "left_square_bracket": "escape", "m": "enter", "i": "tab", "h": "backspace"}
"""What terminals send for Ctrl with such a key, unless they speak a newer protocol."""


def textual_key(key: str) -> str:
    """Return Textual's name of *key* as users write it: `ctrl+]` is `ctrl+right_square_bracket`."""
    *modifiers, last = key.split("+") if len(key) > 1 and key != "+" else [key]
    if len(last) == 1 and not last.isalnum():
        last = unicodedata.name(last, "").lower().replace("-", "_").replace(" ", "_")
        last = {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
                "plus_sign": "plus", "low_line": "underscore"}.get(last, last)  # fmt: skip
    return "+".join((*modifiers, last))


def shown_key(key: str, utf8: bool = True) -> str:
    """Return how a key with this Textual name is shown."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if utf8 or last in ("escape", "pageup", "pagedown", "comma", "question_mark", "slash"):
        last = _NAMED.get(last, last)
    last = _SIGNS.get(last, last)
    if re.fullmatch(r"f\d+", last):
        last = last.upper()
    return "+".join((*modifiers, last))


def writes(key: str) -> bool:
    """Whether *key*, as Textual names it, types a character."""
    return "+" not in key and (len(key) == 1 or key == "space" or key not in _KNOWN_NAMES)


def is_key(key: str) -> bool:
    """Whether *key*, as users write it, names a key."""
    *modifiers, last = key.split("+") if len(key) > 1 and key != "+" else [key]
    named = last in _KNOWN_NAMES or last in _NAMED
    return all(modifier in _MODIFIERS for modifier in modifiers) and (named or (len(last) == 1 and last.isprintable()))


def sent_as(key: str) -> str:
    """Return the key that most terminals send instead of *key*; empty if they send a distinct one."""
    *modifiers, last = key.lower().split("+") if len(key) > 1 else [key]
    return _SENT_AS.get(last, "") if "ctrl" in modifiers and not {"super", "meta"}.intersection(modifiers) else ""
