"""The table of all actions: what they do, by which keys, and in which context.

Help, key bar, palette and key handling all come from `ACTIONS`. A key in the config replaces the keys of its row
(`[keys] next = "tab"`). To add a key, add a row here and its handler: in `actions/handlers.py`, or in the `handlers` of
the screen or box that `KeyContext` names. A test compares the tables, row by row.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final

import msgspec

from kasmon.config.parser import line_of
from kasmon.errors import ConfigError
from kasmon.tui.action import Action, KeyContext
from kasmon.tui.action import FooterOffer as Offer
from kasmon.tui.action import HelpGroup as Group
from kasmon.tui.key_names import is_key, sent_as, shown_key, textual_key, writes

# The rows of one context and one section of the help.
_move = partial(Action, where=KeyContext.LIST, group=Group.MOVE)
_session = partial(Action, where=KeyContext.LIST, group=Group.SESSION)
_fleet = partial(Action, where=KeyContext.LIST, group=Group.FLEET)
_sandbox = partial(Action, where=KeyContext.LIST, group=Group.SANDBOX)
_view = partial(Action, where=KeyContext.LIST, group=Group.VIEW)
_kasmon = partial(Action, where=KeyContext.LIST, group=Group.KASMON)
_sandbox_screen = partial(Action, where=KeyContext.SANDBOX, group=Group.SANDBOX)
_finish = partial(Action, where=KeyContext.FINISH, group=Group.FINISH)
_filter = partial(Action, where=KeyContext.FILTER, group=Group.VIEW)
_card = partial(Action, where=KeyContext.CARD, group=Group.REQUEST)
_inbox = partial(Action, where=KeyContext.INBOX, group=Group.REQUEST)
_board = partial(Action, where=KeyContext.BOARD, group=Group.BOARD)
_terminal = partial(Action, where=KeyContext.TERMINAL, group=Group.INSIDE)
_code_box = partial(Action, where=KeyContext.CODE, group=Group.INSIDE)
_prompt_box = partial(Action, where=KeyContext.PROMPT, group=Group.INSIDE)
_reading = partial(Action, where=KeyContext.READING, group=Group.READING)
_scrollback = partial(Action, where=KeyContext.TEXT, group=Group.READING)
_find_bar = partial(Action, where=KeyContext.FIND, group=Group.READING)
_review = partial(Action, where=KeyContext.REVIEW, group=Group.REVIEW)
_queue = partial(Action, where=KeyContext.QUEUE, group=Group.QUEUE)
_search = partial(Action, where=KeyContext.SEARCH, group=Group.SEARCH)
_everywhere = partial(Action, where=KeyContext.EVERYWHERE)

DETACHES: Final = "ctrl+]"
"""The key by which kasmon's tmux server detaches, so that the user comes back from `attach`."""

ACTIONS: Final = (
    _move("down", ("j", "down"), "down", "Next session", palette=False),
    _move("up", ("k", "up"), "up", "Previous session", palette=False),
    _move("page_down", ("pagedown", "ctrl+d"), "page down", "Page down", palette=False),
    _move("page_up", ("pageup", "ctrl+u"), "page up", "Page up", palette=False),
    _move("top", ("home",), "top", "First session", palette=False),
    _move("bottom", ("G", "end"), "bottom", "Last session", palette=False),
    _move("next", ("w",), "next", "Jump to next session that needs attention", offered=Offer.SOMEWHERE),
    _everywhere("next_inside", ("f6",), "open next", "Open next session that needs attention", group=Group.MOVE),
    _session("open", ("enter",), "open", "Open session", offered=Offer.SOMEWHERE),
    _everywhere("inbox", ("i", "f2"), "requests", "Review pending requests", group=Group.REQUEST),
    _everywhere("all_requests", ("I", "f4"), "inbox", "Open inbox (all pending requests)", group=Group.REQUEST),
    _fleet("new", ("n",), "new", "New session…", offered=Offer.ALWAYS),
    _fleet("adopt", ("t",), "adopt", "Adopt a running tmux pane…"),
    _session("message", ("m",), "message", "Send a prompt…", offered=Offer.RUNNING),
    _session("interrupt", ("c",), "interrupt", "Interrupt the current turn"),
    _session("stop", ("x",), "stop", "Stop session…", offered=Offer.RUNNING),
    _session("hibernate", ("b",), "hibernate", "Hibernate idle session: free its memory until next use"),
    _fleet("hibernate_idle", ("K",), "hibernate idle", "Hibernate sessions idle for the longest time…"),
    _session(
        "attach",
        ("o",),
        "attach",
        f"Attach to terminal full screen ({DETACHES} detaches)",
        offered=Offer.LIVE_TERMINAL,
    ),
    _sandbox("freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)", offered=Offer.AWAKE),
    _sandbox("wake", ("u",), "resume", "Resume sandbox, or a program that Ctrl+Z stopped", offered=Offer.ASLEEP),
    _sandbox("pause_box", ("P",), "pause to disk", "Pause sandbox to disk", offered=Offer.PAUSABLE),
    _sandbox("keep", ("s",), "checkpoint", "Create checkpoint", offered=Offer.KEEPING),
    _sandbox("fork", ("f",), "fork", "Fork sandbox…"),
    _sandbox("sandbox", ("H",), "history", "Sandbox history, checkpoints and usage", offered=Offer.SANDBOXED),
    _sandbox("freeze_all", ("Z",), "pause all", "Pause all sandboxes…"),
    _sandbox_screen("box_down", ("j", "down"), "down", "Next entry"),
    _sandbox_screen("box_up", ("k", "up"), "up", "Previous entry"),
    _sandbox_screen("box_top", ("g", "home"), "newest", "Newest entry"),
    _sandbox_screen("box_bottom", ("G", "end"), "oldest", "Oldest entry"),
    _sandbox_screen("box_read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down in details"),
    _sandbox_screen("box_read_back", ("pageup", "ctrl+u"), "page up", "Page up in details"),
    _sandbox_screen("box_diff", ("D", "enter"), "diff", "Show what this turn changed"),
    _sandbox_screen("box_restore", ("r",), "restore", "Restore this checkpoint…"),
    _sandbox_screen("box_fork", ("f",), "fork", "Fork from this checkpoint…"),
    _sandbox_screen("box_fork_now", ("F",), "fork now", "Fork current state…"),
    _sandbox_screen("box_replay", ("p",), "replay", "Replay up to here in a new sandbox…"),
    _sandbox_screen("box_allow", ("a",), "allow", "Allow the blocked host…"),
    _sandbox_screen("box_keep", ("s",), "checkpoint", "Create checkpoint"),
    _sandbox_screen("box_freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)"),
    _sandbox_screen("box_pause", ("P",), "pause to disk", "Pause sandbox to disk"),
    _sandbox_screen("box_wake", ("u",), "resume", "Resume sandbox"),
    _sandbox_screen("leave_box", ("escape", "q"), "leave", "Back to the list"),
    _session("restart", ("R",), "restart", "Restart ended session", offered=Offer.ENDED),
    _session("log_in", ("A",), "log in", "Log in to the agent in a terminal…", offered=Offer.LOGGED_OUT),
    _session("move", ("V",), "move", "Move session to a terminal or to structured mode…"),
    _session("explain", (), "explain", "Explain status: evidence and recent changes"),
    _session("export", (), "export", "Export transcript to Markdown"),
    _session("rename", ("r",), "rename", "Rename session…"),
    _session("tag", ("T",), "tags", "Edit tags…"),
    _session("forget", ("X",), "remove", "Remove ended session from list…", offered=Offer.ENDED),
    _session("mark_viewed", ("L",), "mark viewed", "Mark finished session as viewed", offered=Offer.UNVIEWED),
    _session("diff", ("D",), "diff", "Review changes of the branch or of a turn"),
    _session("finish", ("F",), "finish", "Finish branch: commit, push, merge, discard…", offered=Offer.BRANCHED),
    _session("send_feedback", ("f8",), "fix", "Send failed checks and review comments to the agent"),
    _finish("finish_fix", ("f", "f8"), "fix", "Send failed checks and comments to the agent"),
    _finish("finish_commit", ("c",), "commit", "Commit all changes…"),
    _finish("finish_message", ("a",), "ask", "Ask the agent for a commit message"),
    _finish("finish_update", ("u",), "update", "Update from the base: rebase or merge…"),
    _finish("finish_push", ("p",), "push", "Push…"),
    _finish("finish_propose", ("P",), "pull request", "Push, and open a pull request…"),
    _finish("finish_merge", ("m",), "merge", "Merge into the base…"),
    _finish("finish_merge_plan", ("M",), "merge all", "Merge overlapping branches…"),
    _finish("finish_take_over", ("t",), "take over", "Stage its changes in your checkout…"),
    _finish("finish_discard", ("X",), "discard", "Remove the worktree and its branch…"),
    _finish("finish_diff", ("D",), "diff", "Show what the branch changed"),
    _finish("finish_refresh", ("r",), "refresh", "Read the branch again"),
    _finish("finish_down", ("space", "pagedown", "ctrl+d"), "page down", "Page down"),
    _finish("finish_up", ("pageup", "ctrl+u"), "page up", "Page up"),
    _finish("leave_finish", ("escape", "q"), "leave", "Back to the list"),
    _fleet("broadcast", ("M",), "broadcast", "Broadcast a prompt to all agents in the list…"),
    _view("filter", ("/",), "filter", "Filter (text, state:asking, wave:2, machine:gpu-1)", offered=Offer.SESSIONS),
    _view("show_all", ("escape",), "clear filter", "Clear filter"),
    _filter("filter_keep", ("enter", "down", "up"), "apply", "Apply filter", offered=Offer.ALWAYS),
    _filter("filter_drop", ("escape",), "clear", "Clear filter", offered=Offer.ALWAYS),
    _everywhere("search", ("ctrl+f", "f7"), "search", "Search all transcripts and terminal output", group=Group.VIEW),
    _view("sort", ("S",), "sort", "Sort by attention, name, agent, age, cost, wave, machine"),
    _view("waves", ("W",), "waves", "Toggle grouping by wave"),
    _view("group", ("g",), "group", "Group by tag, folder, plan, machine, account"),
    _view("save_filter", ("=",), "save filter", "Save filter as a tab; rename or remove its tab…"),
    _view("tab_on", ("]",), "next tab", "Next saved filter", palette=False),
    _view("tab_back", ("[",), "previous tab", "Previous saved filter", palette=False),
    _view("columns", ("|",), "columns", "Choose columns and their order…"),
    _everywhere("board", ("B", "f5"), "wave board", "Open wave board (running plans)", group=Group.VIEW),
    _view("fold", ("h", "left"), "fold", "Fold group", palette=False),
    _view("unfold", ("l", "right"), "unfold", "Unfold group", palette=False),
    _view("preview", ("space",), "preview", "Toggle preview"),
    _view("pin", ("p",), "pin", "Pin preview to this session"),
    _view("preview_up", ("shift+pageup",), "preview up", "Scroll preview up", palette=False),
    _view("preview_down", ("shift+pagedown",), "preview down", "Scroll preview down", palette=False),
    _card("allow_once", ("a",), "once", "Allow once"),
    _card("allow_always", ("A",), "always", "Always allow (adds the rule shown)"),
    _card("deny", ("d",), "deny", "Deny (with a reason)"),
    _card("deny_always", ("D",), "never", "Always deny (adds the rule shown)"),
    _card("deny_and_end", ("c",), "deny and interrupt", "Deny and interrupt the turn"),
    _card("reach", ("s",), "scope", "Change the scope of the rule"),
    _card("own_words", ("o",), "custom answer", "Write a custom answer"),
    _card("together", ("T",), "similar", "Answer similar requests together"),
    _card("edit", ("e",), "edit", "Edit input, then allow"),
    _card("later", ("z",), "snooze", "Snooze (agent keeps waiting)"),
    _card("request_back", ("left",), "previous", "Previous request"),
    _card("request_on", ("right",), "next", "Next request"),
    _card("read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down"),
    _card("read_back", ("pageup", "ctrl+u"), "page up", "Page up"),
    _card("line_on", ("j", "down"), "line down", "Line down"),
    _card("line_back", ("k", "up"), "line up", "Line up"),
    _card("read_top", ("home",), "top", "Top"),
    _card("read_end", ("end",), "end", "End"),
    _card("close", ("escape",), "close", "Close (sends no answer)"),
    _inbox("inbox_down", ("j", "down"), "down", "Next request"),
    _inbox("inbox_up", ("k", "up"), "up", "Previous request"),
    _inbox("inbox_top", ("g",), "top", "First request"),
    _inbox("inbox_bottom", ("G",), "bottom", "Last request"),
    _inbox("mark", ("space",), "mark", "Mark, to answer several together"),
    _inbox("to_request", ("tab",), "switch focus", "Switch focus between list and request"),
    _inbox("leave_inbox", ("escape", "q"), "leave", "Leave (sends no answer)"),
    _board("task_down", ("j", "down"), "down", "Next task"),
    _board("task_up", ("k", "up"), "up", "Previous task"),
    _board("wave_back", ("h", "left"), "previous wave", "Previous wave"),
    _board("wave_on", ("l", "right"), "next wave", "Next wave"),
    _board("task_top", ("g", "home"), "first", "First task"),
    _board("task_bottom", ("G", "end"), "last", "Last task"),
    _board("board_down", ("pagedown", "ctrl+d"), "page down", "Page down"),
    _board("board_up", ("pageup", "ctrl+u"), "page up", "Page up"),
    _board("task_next", ("w",), "next", "Next task that needs attention"),
    _board("task_open", ("enter",), "open", "Open the task's session"),
    _board("task_read", ("space",), "details", "Task details: prompt, check, failures"),
    _board("task_diff", ("D",), "diff", "Show what the task changed"),
    _board("plan_advance", ("A",), "start next wave", "Start next wave"),
    _board("task_accept", ("a",), "accept", "Accept task as done"),
    _board("task_retry", ("r",), "retry", "Retry task…"),
    _board("task_replace", ("R",), "replace", "Retry task with another agent…"),
    _board("task_skip", ("s",), "skip", "Skip task…"),
    _board("plan_pause", ("p",), "pause", "Pause or resume plan"),
    _board("plan_edit", ("e",), "review changes", "Review and apply plan file changes…"),
    _board("plan_abort", ("X",), "abort", "Abort plan…"),
    _board("plan_on", ("]", "tab"), "next plan", "Next plan"),
    _board("plan_back", ("[", "shift+tab"), "previous plan", "Previous plan"),
    _board("leave_board", ("escape", "q"), "leave", "Back to the list"),
    _terminal("leave_focus", ("ctrl+]", "f12"), "leave", "Back to the list", offered=Offer.ALWAYS),
    _code_box("run_code", ("enter",), "run", "Run code", offered=Offer.ALWAYS),
    _code_box("interpreter", ("tab",), "interpreter", "Switch interpreter: python, bash, node", offered=Offer.ALWAYS),
    _code_box("read_run", ("shift+tab",), "read", "Read and search the output", offered=Offer.ALWAYS),
    _prompt_box("submit", ("enter",), "send", "Send prompt", offered=Offer.ALWAYS),
    _prompt_box(
        "newline", ("ctrl+j", "alt+enter", "shift+enter"), "new line", "Insert a new line", offered=Offer.ALWAYS
    ),
    _prompt_box("submit_later", ("alt+q",), "queue", "Queue prompt until the turn ends"),
    _prompt_box("break_off", ("ctrl+c",), "interrupt", "Interrupt the current turn", offered=Offer.INTERRUPTIBLE),
    _prompt_box("history_back", ("up",), "previous prompt", "Previous prompt (from history)"),
    _prompt_box("history_on", ("down",), "next prompt", "Next prompt (from history)"),
    _prompt_box("history_search", ("ctrl+r",), "search prompts", "Search earlier prompts"),
    _prompt_box("show_image", ("alt+p",), "pictures", "Show the pictures that the prompt mentions"),
    _prompt_box("paste_image", ("alt+v",), "paste picture", "Paste the picture in the clipboard"),
    _prompt_box("edit_earlier", ("alt+e",), "edit earlier", "Edit an earlier prompt, fork there… (esc esc)"),
    _prompt_box("read", ("tab",), "read", "Read and search the transcript", offered=Offer.ALWAYS),
    _prompt_box("queue", ("shift+tab",), "queue", "Edit queued prompts", offered=Offer.QUEUED),
    _prompt_box("read_up", ("pageup",), "scroll up", "Scroll up"),
    _prompt_box("read_down", ("pagedown",), "scroll down", "Scroll down"),
    _prompt_box("leave_prompt", ("escape",), "leave", "Back to the list", offered=Offer.ALWAYS),
    _reading("read_line_down", ("j", "down"), "down", "Line down"),
    _reading("read_line_up", ("k", "up"), "up", "Line up"),
    _reading("read_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down"),
    _reading("read_page_up", ("pageup", "ctrl+u", "b"), "page up", "Page up"),
    _reading("read_to_top", ("g", "home"), "top", "Top"),
    _reading("read_to_end", ("G", "end"), "end", "End"),
    _reading("turn_back", ("[",), "prev turn", "Previous turn", offered=Offer.ALWAYS),
    _reading("turn_on", ("]",), "next turn", "Next turn", offered=Offer.ALWAYS),
    _reading("find", ("/",), "search", "Search upwards", offered=Offer.ALWAYS),
    _reading("find_on", ("n",), "next match", "Next match (upwards)", offered=Offer.ALWAYS),
    _reading("find_back", ("N",), "prev match", "Previous match (downwards)"),
    _reading("toggle", ("enter",), "unfold", "Fold or unfold", offered=Offer.ALWAYS),
    _reading("copy", ("y",), "copy", "Copy code block, answer or output", offered=Offer.ALWAYS),
    _reading("copy_answer", ("Y",), "copy answer", "Copy last answer"),
    _reading("read_image", ("p",), "pictures", "Show the pictures of the prompt here"),
    _reading("open_link", ("o",), "link", "Show a link's address, then open it…"),
    _reading("export_turn", ("e",), "export turn", "Export this turn to Markdown"),
    _reading("share", ("E",), "share", "Write the session to one HTML file…"),
    _reading("write", ("tab", "m"), "write", "Write a prompt", offered=Offer.ALWAYS),
    _reading("stop_reading", ("escape", "q"), "leave", "Back", offered=Offer.ALWAYS),
    _scrollback("text_select", ("v",), "select", "Start selection"),
    _scrollback("text_left", ("left", "h"), "left", "Character left"),
    _scrollback("text_right", ("right", "l"), "right", "Character right"),
    _find_bar("find_keep", ("enter", "down", "up"), "done", "Close search at this match", offered=Offer.ALWAYS),
    _find_bar("find_drop", ("escape",), "cancel", "Close search and return", offered=Offer.ALWAYS),
    _review("review_down", ("j", "down"), "down", "Line down"),
    _review("review_up", ("k", "up"), "up", "Line up"),
    _review("review_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down"),
    _review("review_page_up", ("pageup", "ctrl+u"), "page up", "Page up"),
    _review("review_top", ("g", "home"), "top", "Top of the file"),
    _review("review_end", ("G", "end"), "end", "End of the file"),
    _review("review_file_on", ("]", "tab"), "next file", "Next file"),
    _review("review_file_back", ("[", "shift+tab"), "prev file", "Previous file"),
    _review("review_change_on", ("J", "}"), "next change", "Next change, also in the next file"),
    _review("review_change_back", ("K", "{"), "prev change", "Previous change, also in the previous file"),
    _review("review_fold", ("enter",), "fold", "Fold or unfold hunk"),
    _review("review_fold_all", ("z",), "fold all", "Fold or unfold all hunks of the file"),
    _review("review_columns", ("s",), "two columns", "Show old and new side by side, or in one column"),
    _review("review_find", ("/",), "search", "Search in all files"),
    _review("review_find_on", ("n",), "next match", "Next match"),
    _review("review_find_back", ("N",), "prev match", "Previous match"),
    _review("review_select", ("v",), "select", "Select lines from here on"),
    _review("review_comment", ("c",), "comment", "Comment on the line or selection; edit the comment"),
    _review("review_comment_delete", ("d",), "delete", "Delete the comment here…"),
    _review("review_comment_resolve", ("x",), "resolve", "Resolve the comment here, or reopen it"),
    _review("review_comments", ("l",), "comments", "List all comments, to edit or go to one"),
    _review("review_send", ("S",), "send comments", "Send the open comments to the agent…"),
    _review("review_revert", ("r",), "revert", "Revert hunk in the worktree…"),
    _review("review_stage", ("a",), "stage", "Stage the unstaged changes of the hunk…"),
    _review("review_undo", ("u",), "undo", "Undo the last reverted or staged hunk"),
    _review("review_branch", ("b",), "branch", "Show all changes of the branch"),
    _review("review_last_turn", ("t",), "last turn", "Show the changes of the last turn"),
    _review("review_turn_back", ("<",), "earlier turn", "Show the previous turn"),
    _review("review_turn_on", (">",), "later turn", "Show the next turn"),
    _review("review_edit", ("e",), "edit", "Open the file at this line in $EDITOR"),
    _review("review_leave", ("escape", "q"), "leave", "Back"),
    _queue("queue_down", ("j", "down"), "down", "Next prompt"),
    _queue("queue_up", ("k", "up"), "up", "Previous prompt"),
    _queue("queue_later", ("J", "shift+down"), "move down", "Move prompt down", offered=Offer.ALWAYS),
    _queue("queue_sooner", ("K", "shift+up"), "move up", "Move prompt up", offered=Offer.ALWAYS),
    _queue("queue_change", ("enter", "e"), "edit", "Edit prompt", offered=Offer.ALWAYS),
    _queue("queue_drop", ("d", "delete"), "delete", "Delete prompt", offered=Offer.ALWAYS),
    _queue("leave_queue", ("escape", "tab"), "back", "Back to the prompt box", offered=Offer.ALWAYS),
    _search("search_down", ("down",), "down", "Next match"),
    _search("search_up", ("up",), "up", "Previous match"),
    _search("search_page_down", ("pagedown",), "page down", "Page down"),
    _search("search_page_up", ("pageup",), "page up", "Page up"),
    _search("search_open", ("enter",), "open", "Open match"),
    _search("leave_search", ("escape",), "back", "Back to the list"),
    _session("read_story", ("v",), "transcript", "Open transcript"),
    _everywhere("configure", ("C", "f3"), "model", "Change model and permission mode…", group=Group.SESSION),
    _kasmon("machines", (), "machines", "Registered machines: list, add, remove"),
    _kasmon("settings", ("comma",), "settings", "Theme and config file path"),
    _everywhere("help", ("?", "f1"), "help", "Help", group=Group.KASMON, offered=Offer.ALWAYS),
    _everywhere("palette", ("ctrl+p",), "palette", "Search commands and sessions", group=Group.KASMON, palette=False),
    _kasmon("quit", ("q", "ctrl+c"), "quit", "Quit (agents keep running)", offered=Offer.ALWAYS),
)
ROWS: Final = {row.id: row for row in ACTIONS}


class KeyMap(msgspec.Struct, frozen=True):
    """The keys in force: the table, with the replacements of the config."""

    chosen: Mapping[str, tuple[str, ...]] = {}

    def of(self, action: str) -> tuple[str, ...]:
        """Return the keys of *action*, as Textual names them."""
        row = ROWS[action]
        return tuple(textual_key(key) for key in self.chosen.get(action, row.keys))

    def shown(self, action: str, utf8: bool = True) -> str:
        keys = self.of(action)
        return shown_key(keys[0], utf8) if keys else ""

    def shown_while_writing(self, action: str, utf8: bool = True) -> str:
        """Return the first key of *action* that types no character, as shown; empty if there is none."""
        return next((shown_key(key, utf8) for key in self.of(action) if not writes(key)), "")

    def all_shown(self, action: str, utf8: bool = True) -> str:
        return "  ".join(shown_key(key, utf8) for key in self.of(action))

    def action(self, key: str, *where: KeyContext) -> Action | None:
        """Return the action that *key* triggers in one of these contexts."""
        return next((row for row in ACTIONS if row.where in where and key in self.of(row.id)), None)

    def action_of(self, names: Iterable[str], *where: KeyContext) -> Action | None:
        """Return the action that a key with these *names* triggers, by the first of them that has one there."""
        return next((row for name in names if (row := self.action(name, *where))), None)


NEAR: Final = 12
"""At most this many similar names are suggested for an unknown action."""
OTHERS: Final = "and others; press `?` in the dashboard"


def chosen(wanted: Mapping[str, str | Iterable[str]], file: str = "config", text: str = "") -> KeyMap:
    """Return the keys in force under these config rows; *text* is the config file's, for line numbers in errors.

    Raises:
        ConfigError: if an action or a key is unknown, or one key would do two things in one context.
    """

    def wrong(action: str, reason: str, allowed: Iterable[str] = ()) -> ConfigError:
        line = line_of(text, ("keys", action))
        return ConfigError(file, reason, line=line, key=f"keys.{action}", allowed=list(allowed))

    put: dict[str, tuple[str, ...]] = {}
    for action, keys in wanted.items():
        if action not in ROWS:
            raise wrong(action, "no such action", [*sorted(get_close_matches(action, ROWS, NEAR, 0.0)), OTHERS])
        put[action] = (keys,) if isinstance(keys, str) else tuple(keys)
        for key in put[action]:
            if not is_key(key):
                raise wrong(action, f"no such key: {key!r}")
            if sent := sent_as(key):
                raise wrong(action, f"most terminals send {sent!r} for the key {key!r}, so choose another key")
    keys_in_force = KeyMap(put)
    for place in KeyContext:
        taken: dict[str, str] = {}
        also = place if place is KeyContext.TERMINAL else KeyContext.EVERYWHERE  # a terminal gets every key but one
        for row in ACTIONS:
            if row.where in (place, also):
                for key in keys_in_force.of(row.id):
                    if taken.setdefault(key, row.id) != row.id:
                        blamed, other = (row.id, taken[key]) if row.id in put else (taken[key], row.id)
                        raise wrong(blamed, f"the key {shown_key(key)!r} is already bound to {other!r} {place.value}")
    return keys_in_force
