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
from kasmon.tui.action import Action, KeyContext
from kasmon.tui.action import FooterOffer as Offer
from kasmon.tui.action import HelpGroup as Group
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
    Action("down", ("j", "down"), "down", "Next session", _LIST, Group.MOVE, palette=False),
    Action("up", ("k", "up"), "up", "Previous session", _LIST, Group.MOVE, palette=False),
    Action("page_down", ("pagedown", "ctrl+d"), "page down", "Page down", _LIST, Group.MOVE, palette=False),
    Action("page_up", ("pageup", "ctrl+u"), "page up", "Page up", _LIST, Group.MOVE, palette=False),
    Action("top", ("home",), "top", "First session", _LIST, Group.MOVE, palette=False),
    Action("bottom", ("G", "end"), "bottom", "Last session", _LIST, Group.MOVE, palette=False),
    Action("next", ("w",), "next", "Jump to next session that needs attention", _LIST, Group.MOVE, Offer.SOMEWHERE),
    Action("next_inside", ("f6",), "open next", "Open next session that needs attention", _ALL, Group.MOVE),
    Action("open", ("enter",), "open", "Open session", _LIST, Group.SESSION, Offer.SOMEWHERE),
    Action("inbox", ("i", "f2"), "requests", "Review pending requests", _ALL, Group.REQUEST),
    Action("all_requests", ("I", "f4"), "inbox", "Open inbox (all pending requests)", _ALL, Group.REQUEST),
    Action("new", ("n",), "new", "New session…", _LIST, Group.FLEET, Offer.ALWAYS),
    Action("adopt", ("t",), "adopt", "Adopt a running tmux pane…", _LIST, Group.FLEET),
    Action("message", ("m",), "message", "Send a prompt…", _LIST, Group.SESSION, Offer.RUNNING),
    Action("interrupt", ("c",), "interrupt", "Interrupt the current turn", _LIST, Group.SESSION),
    Action("stop", ("x",), "stop", "Stop session…", _LIST, Group.SESSION, Offer.RUNNING),
    Action(
        "hibernate", ("b",), "hibernate", "Hibernate idle session: free its memory until next use", _LIST, Group.SESSION
    ),
    Action(
        "hibernate_idle", ("K",), "hibernate idle", "Hibernate sessions idle for the longest time…", _LIST, Group.FLEET
    ),
    Action(
        "attach",
        ("o",),
        "attach",
        f"Attach to terminal full screen ({DETACHES} detaches)",
        _LIST,
        Group.SESSION,
        Offer.LIVE_TERMINAL,
    ),
    Action("freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)", _LIST, Group.SANDBOX, Offer.AWAKE),
    Action(
        "wake", ("u",), "resume", "Resume sandbox, or a program that Ctrl+Z stopped", _LIST, Group.SANDBOX, Offer.ASLEEP
    ),
    Action("pause_box", ("P",), "pause to disk", "Pause sandbox to disk", _LIST, Group.SANDBOX, Offer.PAUSABLE),
    Action("keep", ("s",), "checkpoint", "Create checkpoint", _LIST, Group.SANDBOX, Offer.KEEPING),
    Action("fork", ("f",), "fork", "Fork sandbox…", _LIST, Group.SANDBOX),
    Action(
        "sandbox", ("H",), "history", "Sandbox history, checkpoints and usage", _LIST, Group.SANDBOX, Offer.SANDBOXED
    ),
    Action("freeze_all", ("Z",), "pause all", "Pause all sandboxes…", _LIST, Group.SANDBOX),
    Action("box_down", ("j", "down"), "down", "Next entry", _SANDBOX, Group.SANDBOX),
    Action("box_up", ("k", "up"), "up", "Previous entry", _SANDBOX, Group.SANDBOX),
    Action("box_top", ("g", "home"), "newest", "Newest entry", _SANDBOX, Group.SANDBOX),
    Action("box_bottom", ("G", "end"), "oldest", "Oldest entry", _SANDBOX, Group.SANDBOX),
    Action(
        "box_read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down in details", _SANDBOX, Group.SANDBOX
    ),
    Action("box_read_back", ("pageup", "ctrl+u"), "page up", "Page up in details", _SANDBOX, Group.SANDBOX),
    Action("box_diff", ("D", "enter"), "diff", "Show what this turn changed", _SANDBOX, Group.SANDBOX),
    Action("box_restore", ("r",), "restore", "Restore this checkpoint…", _SANDBOX, Group.SANDBOX),
    Action("box_fork", ("f",), "fork", "Fork from this checkpoint…", _SANDBOX, Group.SANDBOX),
    Action("box_fork_now", ("F",), "fork now", "Fork current state…", _SANDBOX, Group.SANDBOX),
    Action("box_replay", ("p",), "replay", "Replay up to here in a new sandbox…", _SANDBOX, Group.SANDBOX),
    Action("box_allow", ("a",), "allow", "Allow the blocked host…", _SANDBOX, Group.SANDBOX),
    Action("box_keep", ("s",), "checkpoint", "Create checkpoint", _SANDBOX, Group.SANDBOX),
    Action("box_freeze", ("z",), "pause", "Pause sandbox (memory stays in RAM)", _SANDBOX, Group.SANDBOX),
    Action("box_pause", ("P",), "pause to disk", "Pause sandbox to disk", _SANDBOX, Group.SANDBOX),
    Action("box_wake", ("u",), "resume", "Resume sandbox", _SANDBOX, Group.SANDBOX),
    Action("leave_box", ("escape", "q"), "leave", "Back to the list", _SANDBOX, Group.SANDBOX),
    Action("restart", ("R",), "restart", "Restart ended session", _LIST, Group.SESSION, Offer.ENDED),
    Action("log_in", ("A",), "log in", "Log in to the agent in a terminal…", _LIST, Group.SESSION, Offer.LOGGED_OUT),
    Action("move", ("V",), "move", "Move session to a terminal or to structured mode…", _LIST, Group.SESSION),
    Action("explain", (), "explain", "Explain status: evidence and recent changes", _LIST, Group.SESSION),
    Action("export", (), "export", "Export transcript to Markdown", _LIST, Group.SESSION),
    Action("rename", ("r",), "rename", "Rename session…", _LIST, Group.SESSION),
    Action("tag", ("T",), "tags", "Edit tags…", _LIST, Group.SESSION),
    Action("forget", ("X",), "remove", "Remove ended session from list…", _LIST, Group.SESSION, Offer.ENDED),
    Action(
        "mark_viewed", ("L",), "mark viewed", "Mark finished session as viewed", _LIST, Group.SESSION, Offer.UNVIEWED
    ),
    Action("diff", ("D",), "diff", "Review changes of the branch or of a turn", _LIST, Group.SESSION),
    Action(
        "finish", ("F",), "finish", "Finish branch: commit, push, merge, discard…", _LIST, Group.SESSION, Offer.BRANCHED
    ),
    Action(
        "send_feedback", ("f8",), "fix", "Send failed checks and review comments to the agent", _LIST, Group.SESSION
    ),
    Action("finish_fix", ("f", "f8"), "fix", "Send failed checks and comments to the agent", _FINISH, Group.FINISH),
    Action("finish_commit", ("c",), "commit", "Commit all changes…", _FINISH, Group.FINISH),
    Action("finish_message", ("a",), "ask", "Ask the agent for a commit message", _FINISH, Group.FINISH),
    Action("finish_update", ("u",), "update", "Update from the base: rebase or merge…", _FINISH, Group.FINISH),
    Action("finish_push", ("p",), "push", "Push…", _FINISH, Group.FINISH),
    Action("finish_propose", ("P",), "pull request", "Push, and open a pull request…", _FINISH, Group.FINISH),
    Action("finish_merge", ("m",), "merge", "Merge into the base…", _FINISH, Group.FINISH),
    Action("finish_merge_plan", ("M",), "merge all", "Merge overlapping branches…", _FINISH, Group.FINISH),
    Action("finish_take_over", ("t",), "take over", "Stage its changes in your checkout…", _FINISH, Group.FINISH),
    Action("finish_discard", ("X",), "discard", "Remove the worktree and its branch…", _FINISH, Group.FINISH),
    Action("finish_diff", ("D",), "diff", "Show what the branch changed", _FINISH, Group.FINISH),
    Action("finish_refresh", ("r",), "refresh", "Read the branch again", _FINISH, Group.FINISH),
    Action("finish_down", ("space", "pagedown", "ctrl+d"), "page down", "Page down", _FINISH, Group.FINISH),
    Action("finish_up", ("pageup", "ctrl+u"), "page up", "Page up", _FINISH, Group.FINISH),
    Action("leave_finish", ("escape", "q"), "leave", "Back to the list", _FINISH, Group.FINISH),
    Action("broadcast", ("M",), "broadcast", "Broadcast a prompt to all agents in the list…", _LIST, Group.FLEET),
    Action(
        "filter",
        ("/",),
        "filter",
        "Filter (text, state:asking, wave:2, machine:gpu-1)",
        _LIST,
        Group.VIEW,
        Offer.SESSIONS,
    ),
    Action("show_all", ("escape",), "clear filter", "Clear filter", _LIST, Group.VIEW),
    Action("filter_keep", ("enter", "down", "up"), "apply", "Apply filter", _FILTER, Group.VIEW, Offer.ALWAYS),
    Action("filter_drop", ("escape",), "clear", "Clear filter", _FILTER, Group.VIEW, Offer.ALWAYS),
    Action("search", ("ctrl+f", "f7"), "search", "Search all transcripts and terminal output", _ALL, Group.VIEW),
    Action("sort", ("S",), "sort", "Sort by attention, name, agent, age, cost, wave, machine", _LIST, Group.VIEW),
    Action("waves", ("W",), "waves", "Toggle grouping by wave", _LIST, Group.VIEW),
    Action("group", ("g",), "group", "Group by tag, folder, plan, machine, account", _LIST, Group.VIEW),
    Action("save_filter", ("=",), "save filter", "Save filter as a tab; rename or remove its tab…", _LIST, Group.VIEW),
    Action("tab_on", ("]",), "next tab", "Next saved filter", _LIST, Group.VIEW, palette=False),
    Action("tab_back", ("[",), "previous tab", "Previous saved filter", _LIST, Group.VIEW, palette=False),
    Action("columns", ("|",), "columns", "Choose columns and their order…", _LIST, Group.VIEW),
    Action("board", ("B", "f5"), "wave board", "Open wave board (running plans)", _ALL, Group.VIEW),
    Action("fold", ("h", "left"), "fold", "Fold group", _LIST, Group.VIEW, palette=False),
    Action("unfold", ("l", "right"), "unfold", "Unfold group", _LIST, Group.VIEW, palette=False),
    Action("preview", ("space",), "preview", "Toggle preview", _LIST, Group.VIEW),
    Action("pin", ("p",), "pin", "Pin preview to this session", _LIST, Group.VIEW),
    Action("preview_up", ("shift+pageup",), "preview up", "Scroll preview up", _LIST, Group.VIEW, palette=False),
    Action(
        "preview_down", ("shift+pagedown",), "preview down", "Scroll preview down", _LIST, Group.VIEW, palette=False
    ),
    Action("allow_once", ("a",), "once", "Allow once", _CARD, Group.REQUEST),
    Action("allow_always", ("A",), "always", "Always allow (adds the rule shown)", _CARD, Group.REQUEST),
    Action("deny", ("d",), "deny", "Deny (with a reason)", _CARD, Group.REQUEST),
    Action("deny_always", ("D",), "never", "Always deny (adds the rule shown)", _CARD, Group.REQUEST),
    Action("deny_and_end", ("c",), "deny and interrupt", "Deny and interrupt the turn", _CARD, Group.REQUEST),
    Action("reach", ("s",), "scope", "Change the scope of the rule", _CARD, Group.REQUEST),
    Action("own_words", ("o",), "custom answer", "Write a custom answer", _CARD, Group.REQUEST),
    Action("together", ("T",), "similar", "Answer similar requests together", _CARD, Group.REQUEST),
    Action("edit", ("e",), "edit", "Edit input, then allow", _CARD, Group.REQUEST),
    Action("later", ("z",), "snooze", "Snooze (agent keeps waiting)", _CARD, Group.REQUEST),
    Action("request_back", ("left",), "previous", "Previous request", _CARD, Group.REQUEST),
    Action("request_on", ("right",), "next", "Next request", _CARD, Group.REQUEST),
    Action("read_on", ("space", "pagedown", "ctrl+d"), "page down", "Page down", _CARD, Group.REQUEST),
    Action("read_back", ("pageup", "ctrl+u"), "page up", "Page up", _CARD, Group.REQUEST),
    Action("line_on", ("j", "down"), "line down", "Line down", _CARD, Group.REQUEST),
    Action("line_back", ("k", "up"), "line up", "Line up", _CARD, Group.REQUEST),
    Action("read_top", ("home",), "top", "Top", _CARD, Group.REQUEST),
    Action("read_end", ("end",), "end", "End", _CARD, Group.REQUEST),
    Action("close", ("escape",), "close", "Close (sends no answer)", _CARD, Group.REQUEST),
    Action("inbox_down", ("j", "down"), "down", "Next request", _INBOX, Group.REQUEST),
    Action("inbox_up", ("k", "up"), "up", "Previous request", _INBOX, Group.REQUEST),
    Action("inbox_top", ("g",), "top", "First request", _INBOX, Group.REQUEST),
    Action("inbox_bottom", ("G",), "bottom", "Last request", _INBOX, Group.REQUEST),
    Action("mark", ("space",), "mark", "Mark, to answer several together", _INBOX, Group.REQUEST),
    Action("to_request", ("tab",), "switch focus", "Switch focus between list and request", _INBOX, Group.REQUEST),
    Action("leave_inbox", ("escape", "q"), "leave", "Leave (sends no answer)", _INBOX, Group.REQUEST),
    Action("task_down", ("j", "down"), "down", "Next task", _BOARD, Group.BOARD),
    Action("task_up", ("k", "up"), "up", "Previous task", _BOARD, Group.BOARD),
    Action("wave_back", ("h", "left"), "previous wave", "Previous wave", _BOARD, Group.BOARD),
    Action("wave_on", ("l", "right"), "next wave", "Next wave", _BOARD, Group.BOARD),
    Action("task_top", ("g", "home"), "first", "First task", _BOARD, Group.BOARD),
    Action("task_bottom", ("G", "end"), "last", "Last task", _BOARD, Group.BOARD),
    Action("board_down", ("pagedown", "ctrl+d"), "page down", "Page down", _BOARD, Group.BOARD),
    Action("board_up", ("pageup", "ctrl+u"), "page up", "Page up", _BOARD, Group.BOARD),
    Action("task_next", ("w",), "next", "Next task that needs attention", _BOARD, Group.BOARD),
    Action("task_open", ("enter",), "open", "Open the task's session", _BOARD, Group.BOARD),
    Action("task_read", ("space",), "details", "Task details: prompt, check, failures", _BOARD, Group.BOARD),
    Action("task_diff", ("D",), "diff", "Show what the task changed", _BOARD, Group.BOARD),
    Action("plan_advance", ("A",), "start next wave", "Start next wave", _BOARD, Group.BOARD),
    Action("task_accept", ("a",), "accept", "Accept task as done", _BOARD, Group.BOARD),
    Action("task_retry", ("r",), "retry", "Retry task…", _BOARD, Group.BOARD),
    Action("task_replace", ("R",), "replace", "Retry task with another agent…", _BOARD, Group.BOARD),
    Action("task_skip", ("s",), "skip", "Skip task…", _BOARD, Group.BOARD),
    Action("plan_pause", ("p",), "pause", "Pause or resume plan", _BOARD, Group.BOARD),
    Action("plan_edit", ("e",), "review changes", "Review and apply plan file changes…", _BOARD, Group.BOARD),
    Action("plan_abort", ("X",), "abort", "Abort plan…", _BOARD, Group.BOARD),
    Action("plan_on", ("]", "tab"), "next plan", "Next plan", _BOARD, Group.BOARD),
    Action("plan_back", ("[", "shift+tab"), "previous plan", "Previous plan", _BOARD, Group.BOARD),
    Action("leave_board", ("escape", "q"), "leave", "Back to the list", _BOARD, Group.BOARD),
    Action(
        "leave_focus", ("ctrl+]", "f12"), "leave", "Back to the list", KeyContext.TERMINAL, Group.INSIDE, Offer.ALWAYS
    ),
    Action("run_code", ("enter",), "run", "Run code", _CODE, Group.INSIDE, Offer.ALWAYS),
    Action(
        "interpreter",
        ("tab",),
        "interpreter",
        "Switch interpreter: python, bash, node",
        _CODE,
        Group.INSIDE,
        Offer.ALWAYS,
    ),
    Action("read_run", ("shift+tab",), "read", "Read and search the output", _CODE, Group.INSIDE, Offer.ALWAYS),
    Action("submit", ("enter",), "send", "Send prompt", _BOX, Group.INSIDE, Offer.ALWAYS),
    Action(
        "newline",
        ("ctrl+j", "alt+enter", "shift+enter"),
        "new line",
        "Insert a new line",
        _BOX,
        Group.INSIDE,
        Offer.ALWAYS,
    ),
    Action("submit_later", ("alt+q",), "queue", "Queue prompt until the turn ends", _BOX, Group.INSIDE),
    Action(
        "break_off", ("ctrl+c",), "interrupt", "Interrupt the current turn", _BOX, Group.INSIDE, Offer.INTERRUPTIBLE
    ),
    Action("history_back", ("up",), "previous prompt", "Previous prompt (from history)", _BOX, Group.INSIDE),
    Action("history_on", ("down",), "next prompt", "Next prompt (from history)", _BOX, Group.INSIDE),
    Action("history_search", ("ctrl+r",), "search prompts", "Search earlier prompts", _BOX, Group.INSIDE),
    Action("show_image", ("alt+p",), "pictures", "Show the pictures that the prompt mentions", _BOX, Group.INSIDE),
    Action("paste_image", ("alt+v",), "paste picture", "Paste the picture in the clipboard", _BOX, Group.INSIDE),
    Action(
        "edit_earlier",
        ("alt+e",),
        "edit earlier",
        "Edit an earlier prompt, fork there… (esc esc)",
        _BOX,
        Group.INSIDE,
    ),
    Action("read", ("tab",), "read", "Read and search the transcript", _BOX, Group.INSIDE, Offer.ALWAYS),
    Action("queue", ("shift+tab",), "queue", "Edit queued prompts", _BOX, Group.INSIDE, Offer.QUEUED),
    Action("read_up", ("pageup",), "scroll up", "Scroll up", _BOX, Group.INSIDE),
    Action("read_down", ("pagedown",), "scroll down", "Scroll down", _BOX, Group.INSIDE),
    Action("leave_prompt", ("escape",), "leave", "Back to the list", _BOX, Group.INSIDE, Offer.ALWAYS),
    Action("read_line_down", ("j", "down"), "down", "Line down", _READ, Group.READING),
    Action("read_line_up", ("k", "up"), "up", "Line up", _READ, Group.READING),
    Action("read_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down", _READ, Group.READING),
    Action("read_page_up", ("pageup", "ctrl+u", "b"), "page up", "Page up", _READ, Group.READING),
    Action("read_to_top", ("g", "home"), "top", "Top", _READ, Group.READING),
    Action("read_to_end", ("G", "end"), "end", "End", _READ, Group.READING),
    Action("turn_back", ("[",), "prev turn", "Previous turn", _READ, Group.READING, Offer.ALWAYS),
    Action("turn_on", ("]",), "next turn", "Next turn", _READ, Group.READING, Offer.ALWAYS),
    Action("find", ("/",), "search", "Search upwards", _READ, Group.READING, Offer.ALWAYS),
    Action("find_on", ("n",), "next match", "Next match (upwards)", _READ, Group.READING, Offer.ALWAYS),
    Action("find_back", ("N",), "prev match", "Previous match (downwards)", _READ, Group.READING),
    Action("toggle", ("enter",), "unfold", "Fold or unfold", _READ, Group.READING, Offer.ALWAYS),
    Action("copy", ("y",), "copy", "Copy code block, answer or output", _READ, Group.READING, Offer.ALWAYS),
    Action("copy_answer", ("Y",), "copy answer", "Copy last answer", _READ, Group.READING),
    Action("read_image", ("p",), "pictures", "Show the pictures of the prompt here", _READ, Group.READING),
    Action("open_link", ("o",), "link", "Show a link's address, then open it…", _READ, Group.READING),
    Action("export_turn", ("e",), "export turn", "Export this turn to Markdown", _READ, Group.READING),
    Action("share", ("E",), "share", "Write the session to one HTML file…", _READ, Group.READING),
    Action("write", ("tab", "m"), "write", "Write a prompt", _READ, Group.READING, Offer.ALWAYS),
    Action("stop_reading", ("escape", "q"), "leave", "Back", _READ, Group.READING, Offer.ALWAYS),
    Action("text_select", ("v",), "select", "Start selection", _TEXT, Group.READING),
    Action("text_left", ("left", "h"), "left", "Character left", _TEXT, Group.READING),
    Action("text_right", ("right", "l"), "right", "Character right", _TEXT, Group.READING),
    Action(
        "find_keep", ("enter", "down", "up"), "done", "Close search at this match", _FIND, Group.READING, Offer.ALWAYS
    ),
    Action("find_drop", ("escape",), "cancel", "Close search and return", _FIND, Group.READING, Offer.ALWAYS),
    Action("review_down", ("j", "down"), "down", "Line down", _REVIEW, Group.REVIEW),
    Action("review_up", ("k", "up"), "up", "Line up", _REVIEW, Group.REVIEW),
    Action("review_page_down", ("pagedown", "ctrl+d", "space"), "page down", "Page down", _REVIEW, Group.REVIEW),
    Action("review_page_up", ("pageup", "ctrl+u"), "page up", "Page up", _REVIEW, Group.REVIEW),
    Action("review_top", ("g", "home"), "top", "Top of the file", _REVIEW, Group.REVIEW),
    Action("review_end", ("G", "end"), "end", "End of the file", _REVIEW, Group.REVIEW),
    Action("review_file_on", ("]", "tab"), "next file", "Next file", _REVIEW, Group.REVIEW),
    Action("review_file_back", ("[", "shift+tab"), "prev file", "Previous file", _REVIEW, Group.REVIEW),
    Action("review_change_on", ("J", "}"), "next change", "Next change, also in the next file", _REVIEW, Group.REVIEW),
    Action(
        "review_change_back",
        ("K", "{"),
        "prev change",
        "Previous change, also in the previous file",
        _REVIEW,
        Group.REVIEW,
    ),
    Action("review_fold", ("enter",), "fold", "Fold or unfold hunk", _REVIEW, Group.REVIEW),
    Action("review_fold_all", ("z",), "fold all", "Fold or unfold all hunks of the file", _REVIEW, Group.REVIEW),
    Action(
        "review_columns",
        ("s",),
        "two columns",
        "Show old and new side by side, or in one column",
        _REVIEW,
        Group.REVIEW,
    ),
    Action("review_find", ("/",), "search", "Search in all files", _REVIEW, Group.REVIEW),
    Action("review_find_on", ("n",), "next match", "Next match", _REVIEW, Group.REVIEW),
    Action("review_find_back", ("N",), "prev match", "Previous match", _REVIEW, Group.REVIEW),
    Action("review_select", ("v",), "select", "Select lines from here on", _REVIEW, Group.REVIEW),
    Action(
        "review_comment", ("c",), "comment", "Comment on the line or selection; edit the comment", _REVIEW, Group.REVIEW
    ),
    Action("review_comment_delete", ("d",), "delete", "Delete the comment here…", _REVIEW, Group.REVIEW),
    Action(
        "review_comment_resolve", ("x",), "resolve", "Resolve the comment here, or reopen it", _REVIEW, Group.REVIEW
    ),
    Action("review_comments", ("l",), "comments", "List all comments, to edit or go to one", _REVIEW, Group.REVIEW),
    Action("review_send", ("S",), "send comments", "Send the open comments to the agent…", _REVIEW, Group.REVIEW),
    Action("review_revert", ("r",), "revert", "Revert hunk in the worktree…", _REVIEW, Group.REVIEW),
    Action("review_stage", ("a",), "stage", "Stage the unstaged changes of the hunk…", _REVIEW, Group.REVIEW),
    Action("review_undo", ("u",), "undo", "Undo the last reverted or staged hunk", _REVIEW, Group.REVIEW),
    Action("review_branch", ("b",), "branch", "Show all changes of the branch", _REVIEW, Group.REVIEW),
    Action("review_last_turn", ("t",), "last turn", "Show the changes of the last turn", _REVIEW, Group.REVIEW),
    Action("review_turn_back", ("<",), "earlier turn", "Show the previous turn", _REVIEW, Group.REVIEW),
    Action("review_turn_on", (">",), "later turn", "Show the next turn", _REVIEW, Group.REVIEW),
    Action("review_edit", ("e",), "edit", "Open the file at this line in $EDITOR", _REVIEW, Group.REVIEW),
    Action("review_leave", ("escape", "q"), "leave", "Back", _REVIEW, Group.REVIEW),
    Action("queue_down", ("j", "down"), "down", "Next prompt", _QUEUE, Group.QUEUE),
    Action("queue_up", ("k", "up"), "up", "Previous prompt", _QUEUE, Group.QUEUE),
    Action("queue_later", ("J", "shift+down"), "move down", "Move prompt down", _QUEUE, Group.QUEUE, Offer.ALWAYS),
    Action("queue_sooner", ("K", "shift+up"), "move up", "Move prompt up", _QUEUE, Group.QUEUE, Offer.ALWAYS),
    Action("queue_change", ("enter", "e"), "edit", "Edit prompt", _QUEUE, Group.QUEUE, Offer.ALWAYS),
    Action("queue_drop", ("d", "delete"), "delete", "Delete prompt", _QUEUE, Group.QUEUE, Offer.ALWAYS),
    Action("leave_queue", ("escape", "tab"), "back", "Back to the prompt box", _QUEUE, Group.QUEUE, Offer.ALWAYS),
    Action("search_down", ("down",), "down", "Next match", _SEARCH, Group.SEARCH),
    Action("search_up", ("up",), "up", "Previous match", _SEARCH, Group.SEARCH),
    Action("search_page_down", ("pagedown",), "page down", "Page down", _SEARCH, Group.SEARCH),
    Action("search_page_up", ("pageup",), "page up", "Page up", _SEARCH, Group.SEARCH),
    Action("search_open", ("enter",), "open", "Open match", _SEARCH, Group.SEARCH),
    Action("leave_search", ("escape",), "back", "Back to the list", _SEARCH, Group.SEARCH),
    Action("read_story", ("v",), "transcript", "Open transcript", _LIST, Group.SESSION),
    Action("configure", ("C", "f3"), "model", "Change model and permission mode…", _ALL, Group.SESSION),
    Action("machines", (), "machines", "Registered machines: list, add, remove", _LIST, Group.KASMON),
    Action("settings", ("comma",), "settings", "Theme and config file path", _LIST, Group.KASMON),
    Action("help", ("?", "f1"), "help", "Help", _ALL, Group.KASMON, Offer.ALWAYS),
    Action("palette", ("ctrl+p",), "palette", "Search commands and sessions", _ALL, Group.KASMON, palette=False),
    Action("quit", ("q", "ctrl+c"), "quit", "Quit (agents keep running)", _LIST, Group.KASMON, Offer.ALWAYS),
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
