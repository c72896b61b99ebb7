"""The one table of actions: what can be done, by which keys, and where.

Help, the line of keys at the bottom, the palette and the bindings all come from `ACTIONS`. A key in the config replaces
the keys of its row (`[keys] next = "tab"`). To add a key: a row in here and an `action_...` method of its id.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from kasmon.errors import ConfigError


class Where(StrEnum):
    """What must have the keyboard for a key to count."""

    LIST = "in the list"
    CARD = "on a request"
    PROMPT = "in the prompt box"
    TERMINAL = "in a terminal"
    EVERYWHERE = "everywhere"


class Group(StrEnum):
    """The headings of the help."""

    MOVE = "Move"
    SESSION = "This session"
    FLEET = "All sessions"
    VIEW = "View"
    REQUEST = "A request"
    INSIDE = "Inside a session"
    KASMON = "kasmon"


class Action(msgspec.Struct, frozen=True):
    """One thing that can be done by a key."""

    id: str
    keys: tuple[str, ...]
    label: str
    """One or two words, for the line at the bottom and the palette."""
    help: str
    where: Where
    group: Group
    footer: bool = False
    """Whether it stands in the line at the bottom."""
    palette: bool = True
    """Whether the palette offers it."""


_LIST, _CARD, _ALL = Where.LIST, Where.CARD, Where.EVERYWHERE

ACTIONS: Final = (
    Action("down", ("j", "down"), "down", "Next session", _LIST, Group.MOVE, palette=False),
    Action("up", ("k", "up"), "up", "Session above", _LIST, Group.MOVE, palette=False),
    Action("page_down", ("pagedown", "ctrl+d"), "page down", "A page down", _LIST, Group.MOVE, palette=False),
    Action("page_up", ("pageup", "ctrl+u"), "page up", "A page up", _LIST, Group.MOVE, palette=False),
    Action("top", ("g", "home"), "top", "First session", _LIST, Group.MOVE, palette=False),
    Action("bottom", ("G", "end"), "bottom", "Last session", _LIST, Group.MOVE, palette=False),
    Action("next", ("w",), "next", "Next session that needs you", _LIST, Group.MOVE, footer=True),
    Action("open", ("enter",), "open", "Go into the session", _LIST, Group.SESSION, footer=True),
    Action("inbox", ("i", "f2"), "requests", "Show the requests that wait", _ALL, Group.REQUEST, footer=True),
    Action("new", ("n",), "new", "Start a session", _LIST, Group.FLEET, footer=True),
    Action("message", ("m",), "message", "Send this session a prompt", _LIST, Group.SESSION, footer=True),
    Action("attach", ("o",), "attach", "Attach its real terminal, and come back", _LIST, Group.SESSION),
    Action("interrupt", ("c",), "interrupt", "End the turn that runs", _LIST, Group.SESSION),
    Action("stop", ("x",), "stop", "End the agent; asks first", _LIST, Group.SESSION, footer=True),
    Action("restart", ("R",), "restart", "Start an ended session again", _LIST, Group.SESSION),
    Action("rename", ("r",), "rename", "Give it another name", _LIST, Group.SESSION),
    Action("forget", ("X",), "forget", "Take an ended session off the list", _LIST, Group.SESSION),
    Action("diff", ("D",), "diff", "The last change it made", _LIST, Group.SESSION),
    Action("broadcast", ("M",), "broadcast", "Send every session in the list a prompt", _LIST, Group.FLEET),
    Action("filter", ("/",), "filter", "By words, state:asking, wave:2, agent:claude", _LIST, Group.VIEW, footer=True),
    Action("sort", ("S",), "sort", "Next order: attention, name, agent, since, cost, wave", _LIST, Group.VIEW),
    Action("waves", ("W",), "waves", "Group by wave, or not", _LIST, Group.VIEW),
    Action("fold", ("h", "left"), "fold", "Fold the group", _LIST, Group.VIEW, palette=False),
    Action("unfold", ("l", "right"), "unfold", "Unfold the group", _LIST, Group.VIEW, palette=False),
    Action("preview", ("space",), "preview", "Show the preview, or hide it", _LIST, Group.VIEW),
    Action("pin", ("p",), "pin", "Keep this session in the preview", _LIST, Group.VIEW),
    Action("preview_up", ("shift+pageup",), "preview up", "Scroll the preview up", _LIST, Group.VIEW, palette=False),
    Action("preview_down", ("shift+pagedown",), "preview down", "Scroll it down", _LIST, Group.VIEW, palette=False),
    Action("allow_once", ("a",), "once", "Allow it, this once", _CARD, Group.REQUEST, palette=False),
    Action(
        "allow_always", ("A",), "always", "Allow it from now on, by the rule shown", _CARD, Group.REQUEST, palette=False
    ),
    Action("deny", ("d",), "deny", "Deny it, with a reason", _CARD, Group.REQUEST, palette=False),
    Action("edit", ("e",), "edit", "Change what it would do, then allow that", _CARD, Group.REQUEST, palette=False),
    Action("later", ("z",), "later", "Set it aside; the agent waits on", _CARD, Group.REQUEST, palette=False),
    Action("request_back", ("left",), "earlier", "The request before", _CARD, Group.REQUEST, palette=False),
    Action("request_on", ("right",), "further", "The request after", _CARD, Group.REQUEST, palette=False),
    Action("close", ("escape",), "not now", "Close the card; nothing is answered", _CARD, Group.REQUEST, palette=False),
    Action("leave_focus", ("ctrl+]",), "leave", "Back to the list", Where.TERMINAL, Group.INSIDE, True, False),
    Action("submit", ("enter",), "send", "Send the prompt", Where.PROMPT, Group.INSIDE, True, False),
    Action(
        "newline",
        ("shift+enter", "alt+enter", "ctrl+j"),
        "new line",
        "A new line in the prompt",
        Where.PROMPT,
        Group.INSIDE,
        True,
        False,
    ),
    Action("leave_prompt", ("escape",), "leave", "Back to the list", Where.PROMPT, Group.INSIDE, True, False),
    Action("break_off", ("ctrl+c",), "interrupt", "End the turn that runs", Where.PROMPT, Group.INSIDE, True, False),
    Action("read_up", ("pageup",), "scroll up", "Scroll up", Where.PROMPT, Group.INSIDE, palette=False),
    Action("read_down", ("pagedown",), "scroll down", "Scroll down", Where.PROMPT, Group.INSIDE, palette=False),
    Action("settings", ("comma",), "settings", "Themes, and where the config lies", _LIST, Group.KASMON),
    Action("help", ("?", "f1"), "help", "This help", _LIST, Group.KASMON, footer=True),
    Action("palette", ("ctrl+p",), "palette", "Find any action or session by name", _ALL, Group.KASMON, palette=False),
    Action("quit", ("q", "ctrl+c"), "quit", "Close the dashboard; the agents go on", _LIST, Group.KASMON, footer=True),
)

_NAMED: Final = {
    "enter": "⏎", "escape": "esc", "space": "space", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "pageup": "pgup", "pagedown": "pgdn", "comma": ",", "question_mark": "?", "slash": "/",
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


class Keys(msgspec.Struct, frozen=True):
    """The keys that are in force: the table, with what the config puts in its place."""

    chosen: Mapping[str, tuple[str, ...]] = {}

    def of(self, action: str) -> tuple[str, ...]:
        """The keys of *action*, as Textual names them."""
        row = ROWS[action]
        return tuple(textual_key(key) for key in self.chosen.get(action, row.keys))

    def shown(self, action: str, utf8: bool = True) -> str:
        """The first key of *action*, for people."""
        keys = self.of(action)
        return shown_key(keys[0], utf8) if keys else ""

    def all_shown(self, action: str, utf8: bool = True) -> str:
        return "  ".join(shown_key(key, utf8) for key in self.of(action))

    def action(self, key: str, *where: Where) -> Action | None:
        """The action that *key* does at one of these places."""
        return next((row for row in ACTIONS if row.where in where and key in self.of(row.id)), None)


ROWS: Final = {row.id: row for row in ACTIONS}


def chosen(wanted: Mapping[str, str | Iterable[str]], file: str = "config") -> Keys:
    """The keys that are in force under these rows of a config.

    Raises:
        ConfigError: if an action or a key is unknown, or one key would do two things at one place.
    """
    put: dict[str, tuple[str, ...]] = {}
    for action, keys in wanted.items():
        if action not in ROWS:
            raise ConfigError(file, "no such action", key=f"keys.{action}", allowed=sorted(ROWS))
        put[action] = (keys,) if isinstance(keys, str) else tuple(keys)
        for key in put[action]:
            if not _is_key(key):
                raise ConfigError(file, f"no such key: {key!r}", key=f"keys.{action}")
    keys_in_force = Keys(put)
    for place in Where:
        taken: dict[str, str] = {}
        also = place if place is Where.TERMINAL else Where.EVERYWHERE  # a terminal gets every key but one
        for row in ACTIONS:
            if row.where in (place, also):
                for key in keys_in_force.of(row.id):
                    if taken.setdefault(key, row.id) != row.id:
                        why = f"the key {shown_key(key)!r} would also be {taken[key]!r} {place.value}"
                        raise ConfigError(file, why, key=f"keys.{row.id}")
    return keys_in_force


def textual_key(key: str) -> str:
    """*key* as people write it, as Textual names it: `ctrl+]` is `ctrl+right_square_bracket`."""
    *modifiers, last = key.split("+") if len(key) > 1 and key != "+" else [key]
    if len(last) == 1 and not last.isalnum():
        last = unicodedata.name(last, "").lower().replace("-", "_").replace(" ", "_")
        last = {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
                "plus_sign": "plus", "low_line": "underscore"}.get(last, last)  # fmt: skip
    return "+".join((*modifiers, last))


def shown_key(key: str, utf8: bool = True) -> str:
    """Textual's name of a key, for people."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if utf8 or last in ("escape", "pageup", "pagedown", "comma", "question_mark", "slash"):
        last = _NAMED.get(last, last)
    if last == "right_square_bracket":
        last = "]"
    return "+".join((*modifiers, last))


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 and key != "+" else [key]
    named = last in _KNOWN_NAMES or last in _NAMED
    return all(modifier in _MODIFIERS for modifier in modifiers) and (named or (len(last) == 1 and last.isprintable()))
