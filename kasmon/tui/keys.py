"""The one table of actions: what can be done, by which keys, and where.

Help, the line of keys at the bottom, the palette and what a key does all come from `ACTIONS`. A key in the config
replaces the keys of its row (`[keys] next = "tab"`). To add a key: a row in here, and by its id what it does: for the
list, the inside of a session and everywhere a method of the deeds, else an arm in the screen that is its place.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

from kasmon.config.file import line_of
from kasmon.errors import ConfigError
from kasmon.tui.action import Action, Group, Offered, Where
from kasmon.tui.key import is_key, sent_as, shown_key, textual_key, writes

_LIST, _CARD, _ALL, _BOX, _FILTER = Where.LIST, Where.CARD, Where.EVERYWHERE, Where.PROMPT, Where.FILTER
_READ, _FIND, _QUEUE, _INBOX, _TEXT = Where.READING, Where.FIND, Where.QUEUE, Where.INBOX, Where.TEXT
_BOARD, _CODE, _SANDBOX, _SEARCH = Where.BOARD, Where.CODE, Where.SANDBOX, Where.SEARCH

DETACHES: Final = "ctrl+]"
"""What comes back from `attach`: the key that kasmon's tmux server detaches by."""

ACTIONS: Final = (
    Action("down", ("j", "down"), "down", "Next session", _LIST, Group.MOVE, palette=False),
    Action("up", ("k", "up"), "up", "Session above", _LIST, Group.MOVE, palette=False),
    Action("page_down", ("pagedown", "ctrl+d"), "page down", "A page down", _LIST, Group.MOVE, palette=False),
    Action("page_up", ("pageup", "ctrl+u"), "page up", "A page up", _LIST, Group.MOVE, palette=False),
    Action("top", ("g", "home"), "top", "First session", _LIST, Group.MOVE, palette=False),
    Action("bottom", ("G", "end"), "bottom", "Last session", _LIST, Group.MOVE, palette=False),
    Action("next", ("w",), "next", "Next session that needs you", _LIST, Group.MOVE, Offered.SOMEWHERE),
    Action("next_inside", ("f6",), "go to next", "Go into the next that needs you", _ALL, Group.MOVE),
    Action("open", ("enter",), "open", "Go into the session", _LIST, Group.SESSION, Offered.SOMEWHERE),
    Action("inbox", ("i", "f2"), "requests", "Show the requests that wait, to allow or deny them", _ALL, Group.REQUEST),
    Action("all_requests", ("I", "f4"), "inbox", "List all that wait, to answer one or several", _ALL, Group.REQUEST),
    Action("new", ("n",), "new", "Start a session", _LIST, Group.FLEET, Offered.ALWAYS),
    Action("adopt", ("t",), "adopt", "Watch a session of your own tmux", _LIST, Group.FLEET),
    Action("message", ("m",), "message", "Send this session a prompt", _LIST, Group.SESSION, Offered.RUNNING),
    Action("interrupt", ("c",), "interrupt", "End the turn that runs", _LIST, Group.SESSION),
    Action("stop", ("x",), "stop", "End the agent; asks first", _LIST, Group.SESSION, Offered.RUNNING),
    Action(
        "attach",
        ("o",),
        "attach",
        f"Attach its real terminal; {DETACHES} comes back",
        _LIST,
        Group.SESSION,
        Offered.LIVE_TERMINAL,
    ),
    Action(
        "freeze", ("z",), "freeze", "Put its sandbox to sleep; its memory is held", _LIST, Group.SANDBOX, Offered.AWAKE
    ),
    Action("wake", ("u",), "resume", "Let its sandbox go on", _LIST, Group.SANDBOX, Offered.ASLEEP),
    Action("pause_box", ("P",), "pause", "Put its sandbox to sleep on disk", _LIST, Group.SANDBOX, Offered.PAUSABLE),
    Action("keep", ("s",), "checkpoint", "Keep its sandbox as it is now", _LIST, Group.SANDBOX, Offered.KEEPING),
    Action("fork", ("f",), "fork", "Another sandbox that begins where this one is", _LIST, Group.SANDBOX),
    Action(
        "sandbox",
        ("H",),
        "history",
        "What ran in its sandbox, what was kept, what it uses",
        _LIST,
        Group.SANDBOX,
        Offered.SANDBOXED,
    ),
    Action("freeze_all", ("Z",), "freeze all", "Put every sandbox to sleep; asks first", _LIST, Group.SANDBOX),
    Action("box_down", ("j", "down"), "down", "The entry below", _SANDBOX, Group.SANDBOX),
    Action("box_up", ("k", "up"), "up", "The entry above", _SANDBOX, Group.SANDBOX),
    Action("box_top", ("g", "home"), "newest", "The newest entry", _SANDBOX, Group.SANDBOX),
    Action("box_bottom", ("G", "end"), "oldest", "The oldest entry", _SANDBOX, Group.SANDBOX),
    Action(
        "box_read_on",
        ("space", "pagedown", "ctrl+d"),
        "read on",
        "A page on in what is told of it",
        _SANDBOX,
        Group.SANDBOX,
    ),
    Action("box_read_back", ("pageup", "ctrl+u"), "read back", "A page back", _SANDBOX, Group.SANDBOX),
    Action("box_diff", ("D", "enter"), "diff", "What this turn changed", _SANDBOX, Group.SANDBOX),
    Action("box_restore", ("r",), "restore", "Back to this checkpoint; asks first", _SANDBOX, Group.SANDBOX),
    Action("box_fork", ("f",), "fork", "Another sandbox that begins there", _SANDBOX, Group.SANDBOX),
    Action("box_fork_now", ("F",), "fork now", "Another that begins as it is now", _SANDBOX, Group.SANDBOX),
    Action("box_replay", ("p",), "replay", "Run in a new sandbox all that ran until there", _SANDBOX, Group.SANDBOX),
    Action("box_allow", ("a",), "allow", "Let it reach the host that was refused; asks first", _SANDBOX, Group.SANDBOX),
    Action("box_keep", ("s",), "checkpoint", "Keep it as it is now", _SANDBOX, Group.SANDBOX),
    Action("box_freeze", ("z",), "freeze", "Put it to sleep", _SANDBOX, Group.SANDBOX),
    Action("box_pause", ("P",), "pause", "Put it to sleep on disk", _SANDBOX, Group.SANDBOX),
    Action("box_wake", ("u",), "resume", "Let it go on", _SANDBOX, Group.SANDBOX),
    Action("leave_box", ("escape", "q"), "leave", "Back to the list", _SANDBOX, Group.SANDBOX),
    Action("restart", ("R",), "restart", "Start an ended session again", _LIST, Group.SESSION, Offered.ENDED),
    Action("move", ("V",), "move", "Go on in a terminal, or structured; asks first", _LIST, Group.SESSION),
    Action("explain", (), "explain", "Why it is in its state: who says what, its last changes", _LIST, Group.SESSION),
    Action("export", (), "export", "Write all of it into a Markdown file", _LIST, Group.SESSION),
    Action("rename", ("r",), "rename", "Give it another name", _LIST, Group.SESSION),
    Action("forget", ("X",), "forget", "Take an ended session off the list", _LIST, Group.SESSION, Offered.ENDED),
    Action("diff", ("D",), "diff", "The last change it made", _LIST, Group.SESSION),
    Action("broadcast", ("M",), "broadcast", "Send every session in the list a prompt", _LIST, Group.FLEET),
    Action(
        "filter", ("/",), "filter", "By words, state:asking, wave:2, sandbox:jail", _LIST, Group.VIEW, Offered.SESSIONS
    ),
    Action("show_all", ("escape",), "show all", "Without the filter again", _LIST, Group.VIEW),
    Action("filter_keep", ("enter", "down", "up"), "keep", "Keep it", _FILTER, Group.VIEW, Offered.ALWAYS),
    Action("filter_drop", ("escape",), "show all", "Show all again", _FILTER, Group.VIEW, Offered.ALWAYS),
    Action(
        "search", ("ctrl+f", "f7"), "search", "Search all that was said and printed, in every session", _ALL, Group.VIEW
    ),
    Action("sort", ("S",), "sort", "Next order: attention, name, agent, since, cost, wave", _LIST, Group.VIEW),
    Action("waves", ("W",), "waves", "Group by wave, or not", _LIST, Group.VIEW),
    Action(
        "board",
        ("B", "f5"),
        "wave board",
        "Show the plans that run: waves, their tasks, what they ask",
        _ALL,
        Group.VIEW,
    ),
    Action("fold", ("h", "left"), "fold", "Fold the group", _LIST, Group.VIEW, palette=False),
    Action("unfold", ("l", "right"), "unfold", "Unfold the group", _LIST, Group.VIEW, palette=False),
    Action("preview", ("space",), "preview", "Show the preview, or hide it", _LIST, Group.VIEW),
    Action("pin", ("p",), "pin", "Keep this session in the preview", _LIST, Group.VIEW),
    Action("preview_up", ("shift+pageup",), "preview up", "Scroll the preview up", _LIST, Group.VIEW, palette=False),
    Action("preview_down", ("shift+pagedown",), "preview down", "Scroll it down", _LIST, Group.VIEW, palette=False),
    Action("allow_once", ("a",), "once", "Allow it, this once", _CARD, Group.REQUEST),
    Action("allow_always", ("A",), "always", "Allow it from now on, by the rule shown", _CARD, Group.REQUEST),
    Action("deny", ("d",), "deny", "Deny it, with a reason", _CARD, Group.REQUEST),
    Action("deny_always", ("D",), "never", "Deny it from now on, by the rule shown", _CARD, Group.REQUEST),
    Action("deny_and_end", ("c",), "end the turn", "Deny it, and end the turn", _CARD, Group.REQUEST),
    Action("reach", ("s",), "how far", "How far always and never reach", _CARD, Group.REQUEST),
    Action("own_words", ("o",), "own words", "Answer in your own words", _CARD, Group.REQUEST),
    Action("together", ("T",), "together", "Answer requests alike together", _CARD, Group.REQUEST),
    Action("edit", ("e",), "edit", "Change what it would do, then allow that", _CARD, Group.REQUEST),
    Action("later", ("z",), "later", "Set it aside; the agent waits on", _CARD, Group.REQUEST),
    Action("request_back", ("left",), "earlier", "The request before", _CARD, Group.REQUEST),
    Action("request_on", ("right",), "further", "The request after", _CARD, Group.REQUEST),
    Action("read_on", ("space", "pagedown", "ctrl+d"), "read on", "A page of it on", _CARD, Group.REQUEST),
    Action("read_back", ("pageup", "ctrl+u"), "read back", "A page back", _CARD, Group.REQUEST),
    Action("line_on", ("j", "down"), "line on", "A line on", _CARD, Group.REQUEST),
    Action("line_back", ("k", "up"), "line back", "A line back", _CARD, Group.REQUEST),
    Action("read_top", ("home",), "to its top", "To its beginning", _CARD, Group.REQUEST),
    Action("read_end", ("end",), "to its end", "To its end", _CARD, Group.REQUEST),
    Action("close", ("escape",), "not now", "Close the card; nothing is answered", _CARD, Group.REQUEST),
    Action("inbox_down", ("j", "down"), "down", "The request below", _INBOX, Group.REQUEST),
    Action("inbox_up", ("k", "up"), "up", "The request above", _INBOX, Group.REQUEST),
    Action("inbox_top", ("g",), "top", "The first request", _INBOX, Group.REQUEST),
    Action("inbox_bottom", ("G",), "bottom", "The last request", _INBOX, Group.REQUEST),
    Action("mark", ("space",), "mark", "Mark it, to answer several together", _INBOX, Group.REQUEST),
    Action("to_request", ("tab",), "request", "Its keys, or the list's", _INBOX, Group.REQUEST),
    Action("leave_inbox", ("escape", "q"), "leave", "Back; nothing is answered", _INBOX, Group.REQUEST),
    Action("task_down", ("j", "down"), "down", "The task below", _BOARD, Group.BOARD),
    Action("task_up", ("k", "up"), "up", "The task above", _BOARD, Group.BOARD),
    Action("wave_back", ("h", "left"), "wave before", "The wave before", _BOARD, Group.BOARD),
    Action("wave_on", ("l", "right"), "wave after", "The wave after", _BOARD, Group.BOARD),
    Action("task_top", ("g", "home"), "first", "The first task", _BOARD, Group.BOARD),
    Action("task_bottom", ("G", "end"), "last", "The last task", _BOARD, Group.BOARD),
    Action("board_down", ("pagedown", "ctrl+d"), "page down", "A page down", _BOARD, Group.BOARD),
    Action("board_up", ("pageup", "ctrl+u"), "page up", "A page up", _BOARD, Group.BOARD),
    Action("task_next", ("w",), "next", "The next task that needs you", _BOARD, Group.BOARD),
    Action("task_open", ("enter",), "open", "Go into its session", _BOARD, Group.BOARD),
    Action(
        "task_read", ("space",), "details", "All about the task: what it is told, why it failed", _BOARD, Group.BOARD
    ),
    Action("task_diff", ("D",), "diff", "What it changed", _BOARD, Group.BOARD),
    Action("plan_advance", ("A",), "begin next wave", "Let the next wave begin", _BOARD, Group.BOARD),
    Action("task_accept", ("a",), "accept", "Take a task that is called done for done", _BOARD, Group.BOARD),
    Action("task_retry", ("r",), "retry", "Do the task once more", _BOARD, Group.BOARD),
    Action("task_replace", ("R",), "replace", "Once more, by another agent", _BOARD, Group.BOARD),
    Action("task_skip", ("s",), "skip", "Leave the task out; asks first", _BOARD, Group.BOARD),
    Action("plan_pause", ("p",), "pause", "Begin no further task, or go on", _BOARD, Group.BOARD),
    Action("plan_edit", ("e",), "edit", "How its file differs, to take that over", _BOARD, Group.BOARD),
    Action("plan_abort", ("X",), "abort", "Give the plan up; asks first", _BOARD, Group.BOARD),
    Action("plan_on", ("]", "tab"), "next plan", "The plan after", _BOARD, Group.BOARD),
    Action("plan_back", ("[", "shift+tab"), "plan before", "The plan before", _BOARD, Group.BOARD),
    Action("leave_board", ("escape", "q"), "leave", "Back to the list", _BOARD, Group.BOARD),
    Action("leave_focus", ("ctrl+]",), "leave", "Back to the list", Where.TERMINAL, Group.INSIDE, Offered.ALWAYS),
    Action("run_code", ("enter",), "run", "Run the code", _CODE, Group.INSIDE, Offered.ALWAYS),
    Action(
        "interpreter",
        ("tab",),
        "interpreter",
        "The next one runs it: python, bash, node",
        _CODE,
        Group.INSIDE,
        Offered.ALWAYS,
    ),
    Action("read_run", ("shift+tab",), "read", "Read what ran, and search it", _CODE, Group.INSIDE, Offered.ALWAYS),
    Action("submit", ("enter",), "send", "Send the prompt", _BOX, Group.INSIDE, Offered.ALWAYS),
    Action(
        "newline",
        ("ctrl+j", "alt+enter", "shift+enter"),
        "new line",
        "A new line in the prompt",
        _BOX,
        Group.INSIDE,
        Offered.ALWAYS,
    ),
    Action("submit_later", ("alt+q",), "queue", "Send it once the turn has ended", _BOX, Group.INSIDE),
    Action("break_off", ("ctrl+c",), "interrupt", "End the turn that runs", _BOX, Group.INSIDE, Offered.INTERRUPTIBLE),
    Action("history_back", ("up",), "before", "The prompt before, on the first line", _BOX, Group.INSIDE),
    Action("history_on", ("down",), "after", "The prompt after, on the last line", _BOX, Group.INSIDE),
    Action("read", ("tab",), "read", "Read and search what it said", _BOX, Group.INSIDE, Offered.ALWAYS),
    Action("queue", ("shift+tab",), "queue", "Change what waits", _BOX, Group.INSIDE, Offered.QUEUED),
    Action("read_up", ("pageup",), "scroll up", "Scroll up", _BOX, Group.INSIDE),
    Action("read_down", ("pagedown",), "scroll down", "Scroll down", _BOX, Group.INSIDE),
    Action("leave_prompt", ("escape",), "leave", "Back to the list", _BOX, Group.INSIDE, Offered.ALWAYS),
    Action("read_line_down", ("j", "down"), "down", "A line down", _READ, Group.READING),
    Action("read_line_up", ("k", "up"), "up", "A line up", _READ, Group.READING),
    Action("read_page_down", ("pagedown", "ctrl+d", "space"), "page down", "A page down", _READ, Group.READING),
    Action("read_page_up", ("pageup", "ctrl+u", "b"), "page up", "A page up", _READ, Group.READING),
    Action("read_to_top", ("g", "home"), "top", "To its beginning", _READ, Group.READING),
    Action("read_to_end", ("G", "end"), "end", "To its end", _READ, Group.READING),
    Action("turn_back", ("[",), "turn before", "The turn before", _READ, Group.READING, Offered.ALWAYS),
    Action("turn_on", ("]",), "turn after", "The turn after", _READ, Group.READING, Offered.ALWAYS),
    Action("find", ("/",), "search", "Search, upwards from here", _READ, Group.READING, Offered.ALWAYS),
    Action("find_on", ("n",), "further up", "The next place further up", _READ, Group.READING, Offered.ALWAYS),
    Action("find_back", ("N",), "back down", "The next place down", _READ, Group.READING),
    Action(
        "toggle", ("enter",), "unfold", "Show what is folded here, or fold it", _READ, Group.READING, Offered.ALWAYS
    ),
    Action("copy", ("y",), "copy", "Copy the code block, answer or output here", _READ, Group.READING, Offered.ALWAYS),
    Action("copy_answer", ("Y",), "copy answer", "Copy the last answer", _READ, Group.READING),
    Action("write", ("tab", "m"), "write", "Write to it", _READ, Group.READING, Offered.ALWAYS),
    Action("stop_reading", ("escape", "q"), "leave", "Back", _READ, Group.READING, Offered.ALWAYS),
    Action("text_select", ("v",), "select", "Select from here", _TEXT, Group.READING),
    Action("text_left", ("left", "h"), "left", "A character left", _TEXT, Group.READING),
    Action("text_right", ("right", "l"), "right", "A character right", _TEXT, Group.READING),
    Action("find_keep", ("enter", "down", "up"), "go on", "Read on there", _FIND, Group.READING, Offered.ALWAYS),
    Action("find_drop", ("escape",), "back", "Back to where it was", _FIND, Group.READING, Offered.ALWAYS),
    Action("queue_down", ("j", "down"), "down", "The prompt below", _QUEUE, Group.QUEUE),
    Action("queue_up", ("k", "up"), "up", "The prompt above", _QUEUE, Group.QUEUE),
    Action("queue_later", ("J", "shift+down"), "later", "After the next", _QUEUE, Group.QUEUE, Offered.ALWAYS),
    Action("queue_sooner", ("K", "shift+up"), "sooner", "Before the one above", _QUEUE, Group.QUEUE, Offered.ALWAYS),
    Action("queue_change", ("enter", "e"), "change", "Change what it says", _QUEUE, Group.QUEUE, Offered.ALWAYS),
    Action("queue_drop", ("d", "delete"), "take back", "Take it back", _QUEUE, Group.QUEUE, Offered.ALWAYS),
    Action("leave_queue", ("escape", "tab"), "back", "Back to the box", _QUEUE, Group.QUEUE, Offered.ALWAYS),
    Action("search_down", ("down",), "down", "The place below", _SEARCH, Group.SEARCH),
    Action("search_up", ("up",), "up", "The place above", _SEARCH, Group.SEARCH),
    Action("search_page_down", ("pagedown",), "page down", "A page down", _SEARCH, Group.SEARCH),
    Action("search_page_up", ("pageup",), "page up", "A page up", _SEARCH, Group.SEARCH),
    Action("search_open", ("enter",), "open", "Go to that place", _SEARCH, Group.SEARCH),
    Action("leave_search", ("escape",), "back", "Back to the list", _SEARCH, Group.SEARCH),
    Action("read_story", ("v",), "read", "Read and search what it said", _LIST, Group.SESSION),
    Action("configure", ("C", "f3"), "model", "Its model, and how much it asks", _ALL, Group.SESSION),
    Action("settings", ("comma",), "settings", "Themes, and where the config lies", _LIST, Group.KASMON),
    Action("help", ("?", "f1"), "help", "This help", _ALL, Group.KASMON, Offered.ALWAYS),
    Action("palette", ("ctrl+p",), "palette", "Find any action or session by name", _ALL, Group.KASMON, palette=False),
    Action(
        "quit", ("q", "ctrl+c"), "quit", "Close the dashboard; the agents go on", _LIST, Group.KASMON, Offered.ALWAYS
    ),
)
ROWS: Final = {row.id: row for row in ACTIONS}


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

    def shown_while_writing(self, action: str, utf8: bool = True) -> str:
        """The first key of *action* that writes nothing; empty where there is none."""
        return next((shown_key(key, utf8) for key in self.of(action) if not writes(key)), "")

    def all_shown(self, action: str, utf8: bool = True) -> str:
        return "  ".join(shown_key(key, utf8) for key in self.of(action))

    def action(self, key: str, *where: Where) -> Action | None:
        """The action that *key* does at one of these places."""
        return next((row for row in ACTIONS if row.where in where and key in self.of(row.id)), None)


NEAR: Final = 12
"""So many actions that are called nearly so are named where there is none of a name."""
OTHERS: Final = "and others: `?` in the dashboard shows them"


def chosen(wanted: Mapping[str, str | Iterable[str]], file: str = "config", text: str = "") -> Keys:
    """The keys that are in force under these rows of a config; *text* is its file's, to tell lines.

    Raises:
        ConfigError: if an action or a key is unknown, or one key would do two things at one place.
    """

    def wrong(action: str, why: str, allowed: Iterable[str] = ()) -> ConfigError:
        line = line_of(text, ("keys", action))
        return ConfigError(file, why, line=line, key=f"keys.{action}", allowed=list(allowed))

    put: dict[str, tuple[str, ...]] = {}
    for action, keys in wanted.items():
        if action not in ROWS:
            raise wrong(action, "no such action", [*sorted(get_close_matches(action, ROWS, NEAR, 0.0)), OTHERS])
        put[action] = (keys,) if isinstance(keys, str) else tuple(keys)
        for key in put[action]:
            if not is_key(key):
                raise wrong(action, f"no such key: {key!r}")
            if sent := sent_as(key):
                raise wrong(action, f"most terminals send {sent!r} for the key {key!r}, so choose another one")
    keys_in_force = Keys(put)
    for place in Where:
        taken: dict[str, str] = {}
        also = place if place is Where.TERMINAL else Where.EVERYWHERE  # a terminal gets every key but one
        for row in ACTIONS:
            if row.where in (place, also):
                for key in keys_in_force.of(row.id):
                    if taken.setdefault(key, row.id) != row.id:
                        said, other = (row.id, taken[key]) if row.id in put else (taken[key], row.id)
                        raise wrong(said, f"the key {shown_key(key)!r} would also be {other!r} {place.value}")
    return keys_in_force
