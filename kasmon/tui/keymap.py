"""The table of all actions: what they do, by which keys, and in which context.

Help, key bar, palette and key handling all come from `ACTIONS`. A key in the config replaces the keys of its row
(`[keys] next = "tab"`). To add a key, add a row here and its handler: in `actions/handlers.py`, or in the `handlers` of
the screen or box that `KeyContext` names. A test compares the tables, row by row.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

from kasmon.config.parser import line_of
from kasmon.errors import ConfigError
from kasmon.tui.action import Action, FooterOffer, HelpGroup, KeyContext
from kasmon.tui.key_names import is_key, sent_as, shown_key, textual_key, writes

_LIST, _CARD, _ALL, _BOX, _FILTER = (
    KeyContext.LIST,
    KeyContext.CARD,
    KeyContext.EVERYWHERE,
    KeyContext.PROMPT,
    KeyContext.FILTER,
)
_READ, _FIND, _QUEUE, _INBOX, _TEXT = (
    KeyContext.READING,
    KeyContext.FIND,
    KeyContext.QUEUE,
    KeyContext.INBOX,
    KeyContext.TEXT,
)
_BOARD, _CODE, _SANDBOX, _SEARCH = KeyContext.BOARD, KeyContext.CODE, KeyContext.SANDBOX, KeyContext.SEARCH
_REVIEW = KeyContext.REVIEW
_FINISH = KeyContext.FINISH

DETACHES: Final = "ctrl+]"
"""The key by which kasmon's tmux server detaches, so that the user comes back from `attach`."""

ACTIONS: Final = (
    Action("down", ("j", "down"), "down", "Next session", _LIST, HelpGroup.MOVE, palette=False),
    Action("up", ("k", "up"), "up", "Previous session", _LIST, HelpGroup.MOVE, palette=False),
    Action("page_down", ("pagedown", "ctrl+d"), "page down", "Page down", _LIST, HelpGroup.MOVE, palette=False),
    Action("page_up", ("pageup", "ctrl+u"), "page up", "Page up", _LIST, HelpGroup.MOVE, palette=False),
    Action("top", ("g", "home"), "top", "First session", _LIST, HelpGroup.MOVE, palette=False),
    Action("bottom", ("G", "end"), "bottom", "Last session", _LIST, HelpGroup.MOVE, palette=False),
    Action(
        "next",
        ("w",),
        "next",
        "Jump to next session that needs attention",
        _LIST,
        HelpGroup.MOVE,
        FooterOffer.SOMEWHERE,
    ),
    Action("next_inside", ("f6",), "open next", "Open next session that needs attention", _ALL, HelpGroup.MOVE),
    Action("open", ("enter",), "open", "Open session", _LIST, HelpGroup.SESSION, FooterOffer.SOMEWHERE),
    Action("inbox", ("i", "f2"), "requests", "Review pending requests", _ALL, HelpGroup.REQUEST),
    Action("all_requests", ("I", "f4"), "inbox", "Open inbox (all pending requests)", _ALL, HelpGroup.REQUEST),
    Action("new", ("n",), "new", "New session…", _LIST, HelpGroup.FLEET, FooterOffer.ALWAYS),
    Action("adopt", ("t",), "adopt", "Adopt a running tmux pane…", _LIST, HelpGroup.FLEET),
    Action("message", ("m",), "message", "Send a prompt…", _LIST, HelpGroup.SESSION, FooterOffer.RUNNING),
    Action("interrupt", ("c",), "interrupt", "Interrupt the current turn", _LIST, HelpGroup.SESSION),
    Action("stop", ("x",), "stop", "Stop session…", _LIST, HelpGroup.SESSION, FooterOffer.RUNNING),
    Action(
        "attach",
        ("o",),
        "attach",
        f"Attach to terminal full screen ({DETACHES} detaches)",
        _LIST,
        HelpGroup.SESSION,
        FooterOffer.LIVE_TERMINAL,
    ),
    Action(
        "freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)", _LIST, HelpGroup.SANDBOX, FooterOffer.AWAKE
    ),
    Action(
        "wake",
        ("u",),
        "resume",
        "Resume sandbox, or a program that Ctrl+Z stopped",
        _LIST,
        HelpGroup.SANDBOX,
        FooterOffer.ASLEEP,
    ),
    Action(
        "pause_box", ("P",), "pause to disk", "Pause sandbox to disk", _LIST, HelpGroup.SANDBOX, FooterOffer.PAUSABLE
    ),
    Action("keep", ("s",), "checkpoint", "Create checkpoint", _LIST, HelpGroup.SANDBOX, FooterOffer.KEEPING),
    Action("fork", ("f",), "fork", "Fork sandbox…", _LIST, HelpGroup.SANDBOX),
    Action(
        "sandbox",
        ("H",),
        "history",
        "Sandbox history, checkpoints and usage",
        _LIST,
        HelpGroup.SANDBOX,
        FooterOffer.SANDBOXED,
    ),
    Action("freeze_all", ("Z",), "pause all", "Pause all sandboxes…", _LIST, HelpGroup.SANDBOX),
    Action("box_down", ("j", "down"), "down", "Next entry", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_up", ("k", "up"), "up", "Previous entry", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_top", ("g", "home"), "newest", "Newest entry", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_bottom", ("G", "end"), "oldest", "Oldest entry", _SANDBOX, HelpGroup.SANDBOX),
    Action(
        "box_read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down in details", _SANDBOX, HelpGroup.SANDBOX
    ),
    Action("box_read_back", ("pageup", "ctrl+u"), "page up", "Page up in details", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_diff", ("D", "enter"), "diff", "Show what this turn changed", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_restore", ("r",), "restore", "Restore this checkpoint…", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_fork", ("f",), "fork", "Fork from this checkpoint…", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_fork_now", ("F",), "fork now", "Fork current state…", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_replay", ("p",), "replay", "Replay up to here in a new sandbox…", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_allow", ("a",), "allow", "Allow the blocked host…", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_keep", ("s",), "checkpoint", "Create checkpoint", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_pause", ("P",), "pause to disk", "Pause sandbox to disk", _SANDBOX, HelpGroup.SANDBOX),
    Action("box_wake", ("u",), "resume", "Resume sandbox", _SANDBOX, HelpGroup.SANDBOX),
    Action("leave_box", ("escape", "q"), "leave", "Back to the list", _SANDBOX, HelpGroup.SANDBOX),
    Action("restart", ("R",), "restart", "Restart ended session", _LIST, HelpGroup.SESSION, FooterOffer.ENDED),
    Action("move", ("V",), "move", "Move session to a terminal or to structured mode…", _LIST, HelpGroup.SESSION),
    Action("explain", (), "explain", "Explain status: evidence and recent changes", _LIST, HelpGroup.SESSION),
    Action("export", (), "export", "Export transcript to Markdown", _LIST, HelpGroup.SESSION),
    Action("rename", ("r",), "rename", "Rename session…", _LIST, HelpGroup.SESSION),
    Action("forget", ("X",), "remove", "Remove ended session from list…", _LIST, HelpGroup.SESSION, FooterOffer.ENDED),
    Action(
        "mark_viewed",
        ("L",),
        "mark viewed",
        "Mark finished session as viewed",
        _LIST,
        HelpGroup.SESSION,
        FooterOffer.UNVIEWED,
    ),
    Action("diff", ("D",), "diff", "Review changes of the branch or of a turn", _LIST, HelpGroup.SESSION),
    Action(
        "finish",
        ("F",),
        "finish",
        "Finish branch: commit, push, merge, discard…",
        _LIST,
        HelpGroup.SESSION,
        FooterOffer.BRANCHED,
    ),
    Action(
        "send_feedback", ("f8",), "fix", "Send failed checks and review comments to the agent", _LIST, HelpGroup.SESSION
    ),
    Action("finish_fix", ("f", "f8"), "fix", "Send failed checks and comments to the agent", _FINISH, HelpGroup.FINISH),
    Action("finish_commit", ("c",), "commit", "Commit all changes…", _FINISH, HelpGroup.FINISH),
    Action("finish_message", ("a",), "ask", "Ask the agent for a commit message", _FINISH, HelpGroup.FINISH),
    Action("finish_update", ("u",), "update", "Update from the base: rebase or merge…", _FINISH, HelpGroup.FINISH),
    Action("finish_push", ("p",), "push", "Push…", _FINISH, HelpGroup.FINISH),
    Action("finish_propose", ("P",), "pull request", "Push, and open a pull request…", _FINISH, HelpGroup.FINISH),
    Action("finish_merge", ("m",), "merge", "Merge into the base…", _FINISH, HelpGroup.FINISH),
    Action("finish_merge_plan", ("M",), "merge all", "Merge overlapping branches…", _FINISH, HelpGroup.FINISH),
    Action("finish_take_over", ("t",), "take over", "Stage its changes in your checkout…", _FINISH, HelpGroup.FINISH),
    Action("finish_discard", ("X",), "discard", "Remove the worktree and its branch…", _FINISH, HelpGroup.FINISH),
    Action("finish_diff", ("D",), "diff", "Show what the branch changed", _FINISH, HelpGroup.FINISH),
    Action("finish_refresh", ("r",), "refresh", "Read the branch again", _FINISH, HelpGroup.FINISH),
    Action("finish_down", ("space", "pagedown", "ctrl+d"), "page down", "Page down", _FINISH, HelpGroup.FINISH),
    Action("finish_up", ("pageup", "ctrl+u"), "page up", "Page up", _FINISH, HelpGroup.FINISH),
    Action("leave_finish", ("escape", "q"), "leave", "Back to the list", _FINISH, HelpGroup.FINISH),
    Action("broadcast", ("M",), "broadcast", "Broadcast a prompt to all agents in the list…", _LIST, HelpGroup.FLEET),
    Action(
        "filter",
        ("/",),
        "filter",
        "Filter (text, state:asking, wave:2, sandbox:jail)",
        _LIST,
        HelpGroup.VIEW,
        FooterOffer.SESSIONS,
    ),
    Action("show_all", ("escape",), "clear filter", "Clear filter", _LIST, HelpGroup.VIEW),
    Action(
        "filter_keep", ("enter", "down", "up"), "apply", "Apply filter", _FILTER, HelpGroup.VIEW, FooterOffer.ALWAYS
    ),
    Action("filter_drop", ("escape",), "clear", "Clear filter", _FILTER, HelpGroup.VIEW, FooterOffer.ALWAYS),
    Action("search", ("ctrl+f", "f7"), "search", "Search all transcripts and terminal output", _ALL, HelpGroup.VIEW),
    Action("sort", ("S",), "sort", "Cycle sort order: attention, name, agent, age, cost, wave", _LIST, HelpGroup.VIEW),
    Action("waves", ("W",), "waves", "Toggle grouping by wave", _LIST, HelpGroup.VIEW),
    Action("board", ("B", "f5"), "wave board", "Open wave board (running plans)", _ALL, HelpGroup.VIEW),
    Action("fold", ("h", "left"), "fold", "Fold group", _LIST, HelpGroup.VIEW, palette=False),
    Action("unfold", ("l", "right"), "unfold", "Unfold group", _LIST, HelpGroup.VIEW, palette=False),
    Action("preview", ("space",), "preview", "Toggle preview", _LIST, HelpGroup.VIEW),
    Action("pin", ("p",), "pin", "Pin preview to this session", _LIST, HelpGroup.VIEW),
    Action("preview_up", ("shift+pageup",), "preview up", "Scroll preview up", _LIST, HelpGroup.VIEW, palette=False),
    Action(
        "preview_down", ("shift+pagedown",), "preview down", "Scroll preview down", _LIST, HelpGroup.VIEW, palette=False
    ),
    Action("allow_once", ("a",), "once", "Allow once", _CARD, HelpGroup.REQUEST),
    Action("allow_always", ("A",), "always", "Always allow (adds the rule shown)", _CARD, HelpGroup.REQUEST),
    Action("deny", ("d",), "deny", "Deny (with a reason)", _CARD, HelpGroup.REQUEST),
    Action("deny_always", ("D",), "never", "Always deny (adds the rule shown)", _CARD, HelpGroup.REQUEST),
    Action("deny_and_end", ("c",), "deny and interrupt", "Deny and interrupt the turn", _CARD, HelpGroup.REQUEST),
    Action("reach", ("s",), "scope", "Change the scope of the rule", _CARD, HelpGroup.REQUEST),
    Action("own_words", ("o",), "custom answer", "Write a custom answer", _CARD, HelpGroup.REQUEST),
    Action("together", ("T",), "similar", "Answer similar requests together", _CARD, HelpGroup.REQUEST),
    Action("edit", ("e",), "edit", "Edit input, then allow", _CARD, HelpGroup.REQUEST),
    Action("later", ("z",), "snooze", "Snooze (agent keeps waiting)", _CARD, HelpGroup.REQUEST),
    Action("request_back", ("left",), "previous", "Previous request", _CARD, HelpGroup.REQUEST),
    Action("request_on", ("right",), "next", "Next request", _CARD, HelpGroup.REQUEST),
    Action("read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down", _CARD, HelpGroup.REQUEST),
    Action("read_back", ("pageup", "ctrl+u"), "page up", "Page up", _CARD, HelpGroup.REQUEST),
    Action("line_on", ("j", "down"), "line down", "Line down", _CARD, HelpGroup.REQUEST),
    Action("line_back", ("k", "up"), "line up", "Line up", _CARD, HelpGroup.REQUEST),
    Action("read_top", ("home",), "top", "Top", _CARD, HelpGroup.REQUEST),
    Action("read_end", ("end",), "end", "End", _CARD, HelpGroup.REQUEST),
    Action("close", ("escape",), "close", "Close (sends no answer)", _CARD, HelpGroup.REQUEST),
    Action("inbox_down", ("j", "down"), "down", "Next request", _INBOX, HelpGroup.REQUEST),
    Action("inbox_up", ("k", "up"), "up", "Previous request", _INBOX, HelpGroup.REQUEST),
    Action("inbox_top", ("g",), "top", "First request", _INBOX, HelpGroup.REQUEST),
    Action("inbox_bottom", ("G",), "bottom", "Last request", _INBOX, HelpGroup.REQUEST),
    Action("mark", ("space",), "mark", "Mark, to answer several together", _INBOX, HelpGroup.REQUEST),
    Action("to_request", ("tab",), "switch focus", "Switch focus between list and request", _INBOX, HelpGroup.REQUEST),
    Action("leave_inbox", ("escape", "q"), "leave", "Leave (sends no answer)", _INBOX, HelpGroup.REQUEST),
    Action("task_down", ("j", "down"), "down", "Next task", _BOARD, HelpGroup.BOARD),
    Action("task_up", ("k", "up"), "up", "Previous task", _BOARD, HelpGroup.BOARD),
    Action("wave_back", ("h", "left"), "previous wave", "Previous wave", _BOARD, HelpGroup.BOARD),
    Action("wave_on", ("l", "right"), "next wave", "Next wave", _BOARD, HelpGroup.BOARD),
    Action("task_top", ("g", "home"), "first", "First task", _BOARD, HelpGroup.BOARD),
    Action("task_bottom", ("G", "end"), "last", "Last task", _BOARD, HelpGroup.BOARD),
    Action("board_down", ("pagedown", "ctrl+d"), "page down", "Page down", _BOARD, HelpGroup.BOARD),
    Action("board_up", ("pageup", "ctrl+u"), "page up", "Page up", _BOARD, HelpGroup.BOARD),
    Action("task_next", ("w",), "next", "Next task that needs attention", _BOARD, HelpGroup.BOARD),
    Action("task_open", ("enter",), "open", "Open the task's session", _BOARD, HelpGroup.BOARD),
    Action("task_read", ("space",), "details", "Task details: prompt, check, failures", _BOARD, HelpGroup.BOARD),
    Action("task_diff", ("D",), "diff", "Show what the task changed", _BOARD, HelpGroup.BOARD),
    Action("plan_advance", ("A",), "start next wave", "Start next wave", _BOARD, HelpGroup.BOARD),
    Action("task_accept", ("a",), "accept", "Accept task as done", _BOARD, HelpGroup.BOARD),
    Action("task_retry", ("r",), "retry", "Retry task…", _BOARD, HelpGroup.BOARD),
    Action("task_replace", ("R",), "replace", "Retry task with another agent…", _BOARD, HelpGroup.BOARD),
    Action("task_skip", ("s",), "skip", "Skip task…", _BOARD, HelpGroup.BOARD),
    Action("plan_pause", ("p",), "pause", "Pause or resume plan", _BOARD, HelpGroup.BOARD),
    Action("plan_edit", ("e",), "review changes", "Review and apply plan file changes…", _BOARD, HelpGroup.BOARD),
    Action("plan_abort", ("X",), "abort", "Abort plan…", _BOARD, HelpGroup.BOARD),
    Action("plan_on", ("]", "tab"), "next plan", "Next plan", _BOARD, HelpGroup.BOARD),
    Action("plan_back", ("[", "shift+tab"), "previous plan", "Previous plan", _BOARD, HelpGroup.BOARD),
    Action("leave_board", ("escape", "q"), "leave", "Back to the list", _BOARD, HelpGroup.BOARD),
    Action(
        "leave_focus",
        ("ctrl+]", "f12"),
        "leave",
        "Back to the list",
        KeyContext.TERMINAL,
        HelpGroup.INSIDE,
        FooterOffer.ALWAYS,
    ),
    Action("run_code", ("enter",), "run", "Run code", _CODE, HelpGroup.INSIDE, FooterOffer.ALWAYS),
    Action(
        "interpreter",
        ("tab",),
        "interpreter",
        "Switch interpreter: python, bash, node",
        _CODE,
        HelpGroup.INSIDE,
        FooterOffer.ALWAYS,
    ),
    Action(
        "read_run", ("shift+tab",), "read", "Read and search the output", _CODE, HelpGroup.INSIDE, FooterOffer.ALWAYS
    ),
    Action("submit", ("enter",), "send", "Send prompt", _BOX, HelpGroup.INSIDE, FooterOffer.ALWAYS),
    Action(
        "newline",
        ("ctrl+j", "alt+enter", "shift+enter"),
        "new line",
        "Insert a new line",
        _BOX,
        HelpGroup.INSIDE,
        FooterOffer.ALWAYS,
    ),
    Action("submit_later", ("alt+q",), "queue", "Queue prompt until the turn ends", _BOX, HelpGroup.INSIDE),
    Action(
        "break_off",
        ("ctrl+c",),
        "interrupt",
        "Interrupt the current turn",
        _BOX,
        HelpGroup.INSIDE,
        FooterOffer.INTERRUPTIBLE,
    ),
    Action("history_back", ("up",), "previous prompt", "Previous prompt (from history)", _BOX, HelpGroup.INSIDE),
    Action("history_on", ("down",), "next prompt", "Next prompt (from history)", _BOX, HelpGroup.INSIDE),
    Action("read", ("tab",), "read", "Read and search the transcript", _BOX, HelpGroup.INSIDE, FooterOffer.ALWAYS),
    Action("queue", ("shift+tab",), "queue", "Edit queued prompts", _BOX, HelpGroup.INSIDE, FooterOffer.QUEUED),
    Action("read_up", ("pageup",), "scroll up", "Scroll up", _BOX, HelpGroup.INSIDE),
    Action("read_down", ("pagedown",), "scroll down", "Scroll down", _BOX, HelpGroup.INSIDE),
    Action("leave_prompt", ("escape",), "leave", "Back to the list", _BOX, HelpGroup.INSIDE, FooterOffer.ALWAYS),
    Action("read_line_down", ("j", "down"), "down", "Line down", _READ, HelpGroup.READING),
    Action("read_line_up", ("k", "up"), "up", "Line up", _READ, HelpGroup.READING),
    Action("read_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down", _READ, HelpGroup.READING),
    Action("read_page_up", ("pageup", "ctrl+u", "b"), "page up", "Page up", _READ, HelpGroup.READING),
    Action("read_to_top", ("g", "home"), "top", "Top", _READ, HelpGroup.READING),
    Action("read_to_end", ("G", "end"), "end", "End", _READ, HelpGroup.READING),
    Action("turn_back", ("[",), "prev turn", "Previous turn", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("turn_on", ("]",), "next turn", "Next turn", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("find", ("/",), "search", "Search upwards", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("find_on", ("n",), "next match", "Next match (upwards)", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("find_back", ("N",), "prev match", "Previous match (downwards)", _READ, HelpGroup.READING),
    Action("toggle", ("enter",), "unfold", "Fold or unfold", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("copy", ("y",), "copy", "Copy code block, answer or output", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("copy_answer", ("Y",), "copy answer", "Copy last answer", _READ, HelpGroup.READING),
    Action("write", ("tab", "m"), "write", "Write a prompt", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("stop_reading", ("escape", "q"), "leave", "Back", _READ, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("text_select", ("v",), "select", "Start selection", _TEXT, HelpGroup.READING),
    Action("text_left", ("left", "h"), "left", "Character left", _TEXT, HelpGroup.READING),
    Action("text_right", ("right", "l"), "right", "Character right", _TEXT, HelpGroup.READING),
    Action(
        "find_keep",
        ("enter", "down", "up"),
        "done",
        "Close search at this match",
        _FIND,
        HelpGroup.READING,
        FooterOffer.ALWAYS,
    ),
    Action("find_drop", ("escape",), "cancel", "Close search and return", _FIND, HelpGroup.READING, FooterOffer.ALWAYS),
    Action("review_down", ("j", "down"), "down", "Line down", _REVIEW, HelpGroup.REVIEW),
    Action("review_up", ("k", "up"), "up", "Line up", _REVIEW, HelpGroup.REVIEW),
    Action("review_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down", _REVIEW, HelpGroup.REVIEW),
    Action("review_page_up", ("pageup", "ctrl+u"), "page up", "Page up", _REVIEW, HelpGroup.REVIEW),
    Action("review_top", ("g", "home"), "top", "Top of the file", _REVIEW, HelpGroup.REVIEW),
    Action("review_end", ("G", "end"), "end", "End of the file", _REVIEW, HelpGroup.REVIEW),
    Action("review_file_on", ("]", "tab"), "next file", "Next file", _REVIEW, HelpGroup.REVIEW),
    Action("review_file_back", ("[", "shift+tab"), "prev file", "Previous file", _REVIEW, HelpGroup.REVIEW),
    Action(
        "review_change_on", ("J", "}"), "next change", "Next change, also in the next file", _REVIEW, HelpGroup.REVIEW
    ),
    Action(
        "review_change_back",
        ("K", "{"),
        "prev change",
        "Previous change, also in the previous file",
        _REVIEW,
        HelpGroup.REVIEW,
    ),
    Action("review_fold", ("enter",), "fold", "Fold or unfold hunk", _REVIEW, HelpGroup.REVIEW),
    Action("review_fold_all", ("z",), "fold all", "Fold or unfold all hunks of the file", _REVIEW, HelpGroup.REVIEW),
    Action(
        "review_columns",
        ("s",),
        "two columns",
        "Show old and new side by side, or in one column",
        _REVIEW,
        HelpGroup.REVIEW,
    ),
    Action("review_find", ("/",), "search", "Search in all files", _REVIEW, HelpGroup.REVIEW),
    Action("review_find_on", ("n",), "next match", "Next match", _REVIEW, HelpGroup.REVIEW),
    Action("review_find_back", ("N",), "prev match", "Previous match", _REVIEW, HelpGroup.REVIEW),
    Action("review_select", ("v",), "select", "Select lines from here on", _REVIEW, HelpGroup.REVIEW),
    Action(
        "review_comment",
        ("c",),
        "comment",
        "Comment on the line or selection; edit the comment",
        _REVIEW,
        HelpGroup.REVIEW,
    ),
    Action("review_comment_delete", ("d",), "delete", "Delete the comment here…", _REVIEW, HelpGroup.REVIEW),
    Action(
        "review_comment_resolve", ("x",), "resolve", "Resolve the comment here, or reopen it", _REVIEW, HelpGroup.REVIEW
    ),
    Action("review_comments", ("l",), "comments", "List all comments, to edit or go to one", _REVIEW, HelpGroup.REVIEW),
    Action("review_send", ("S",), "send comments", "Send the open comments to the agent…", _REVIEW, HelpGroup.REVIEW),
    Action("review_revert", ("r",), "revert", "Revert hunk in the worktree…", _REVIEW, HelpGroup.REVIEW),
    Action("review_stage", ("a",), "stage", "Stage the unstaged changes of the hunk…", _REVIEW, HelpGroup.REVIEW),
    Action("review_undo", ("u",), "undo", "Undo the last reverted or staged hunk", _REVIEW, HelpGroup.REVIEW),
    Action("review_branch", ("b",), "branch", "Show all changes of the branch", _REVIEW, HelpGroup.REVIEW),
    Action("review_last_turn", ("t",), "last turn", "Show the changes of the last turn", _REVIEW, HelpGroup.REVIEW),
    Action("review_turn_back", ("<",), "earlier turn", "Show the turn before", _REVIEW, HelpGroup.REVIEW),
    Action("review_turn_on", (">",), "later turn", "Show the next turn", _REVIEW, HelpGroup.REVIEW),
    Action("review_edit", ("e",), "edit", "Open the file at this line in $EDITOR", _REVIEW, HelpGroup.REVIEW),
    Action("review_leave", ("escape", "q"), "leave", "Back", _REVIEW, HelpGroup.REVIEW),
    Action("queue_down", ("j", "down"), "down", "Next prompt", _QUEUE, HelpGroup.QUEUE),
    Action("queue_up", ("k", "up"), "up", "Previous prompt", _QUEUE, HelpGroup.QUEUE),
    Action(
        "queue_later", ("J", "shift+down"), "move down", "Move prompt down", _QUEUE, HelpGroup.QUEUE, FooterOffer.ALWAYS
    ),
    Action("queue_sooner", ("K", "shift+up"), "move up", "Move prompt up", _QUEUE, HelpGroup.QUEUE, FooterOffer.ALWAYS),
    Action("queue_change", ("enter", "e"), "edit", "Edit prompt", _QUEUE, HelpGroup.QUEUE, FooterOffer.ALWAYS),
    Action("queue_drop", ("d", "delete"), "delete", "Delete prompt", _QUEUE, HelpGroup.QUEUE, FooterOffer.ALWAYS),
    Action(
        "leave_queue", ("escape", "tab"), "back", "Back to the prompt box", _QUEUE, HelpGroup.QUEUE, FooterOffer.ALWAYS
    ),
    Action("search_down", ("down",), "down", "Next match", _SEARCH, HelpGroup.SEARCH),
    Action("search_up", ("up",), "up", "Previous match", _SEARCH, HelpGroup.SEARCH),
    Action("search_page_down", ("pagedown",), "page down", "Page down", _SEARCH, HelpGroup.SEARCH),
    Action("search_page_up", ("pageup",), "page up", "Page up", _SEARCH, HelpGroup.SEARCH),
    Action("search_open", ("enter",), "open", "Open match", _SEARCH, HelpGroup.SEARCH),
    Action("leave_search", ("escape",), "back", "Back to the list", _SEARCH, HelpGroup.SEARCH),
    Action("read_story", ("v",), "transcript", "Open transcript", _LIST, HelpGroup.SESSION),
    Action("configure", ("C", "f3"), "model", "Change model and permission mode…", _ALL, HelpGroup.SESSION),
    Action("settings", ("comma",), "settings", "Theme and config file path", _LIST, HelpGroup.KASMON),
    Action("help", ("?", "f1"), "help", "Help", _ALL, HelpGroup.KASMON, FooterOffer.ALWAYS),
    Action("palette", ("ctrl+p",), "palette", "Search commands and sessions", _ALL, HelpGroup.KASMON, palette=False),
    Action("quit", ("q", "ctrl+c"), "quit", "Quit (agents keep running)", _LIST, HelpGroup.KASMON, FooterOffer.ALWAYS),
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
