"""The table of all actions: what they do, by which keys, and in which context.

Help, key bar, palette and key handling (`key_dispatcher`) all come from `Keys`. A key in the config replaces the keys
of its row (`[keys] next = "tab"`). To add a key, add a row here, and its handler to the table `handlers` of what its
`run_by` names: `Keys.NEXT: method`. The type checker compares the names, and a test both tables, row by row.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final

import msgspec

from kasmon.config.parser import line_of
from kasmon.errors import ConfigError
from kasmon.tui.action import APP, Action, KeyContext
from kasmon.tui.action import FooterOffer as Offer
from kasmon.tui.action import HelpGroup as Group
from kasmon.tui.key_names import is_key, sent_as, shown_key, textual_key, writes

_PROMPT_BOX = "transcript/prompt_box.py:PromptBox"
_SCROLLBACK = "terminal/scrollback/screen.py:ScrollbackScreen"
_REVIEW_SCREEN = "review/screen.py:ReviewScreen"
# The rows of one context and one section of the help, and what runs them; `actions/handlers.py` if nothing is named.
_move = partial(Action, where=KeyContext.LIST, group=Group.MOVE)
_session = partial(Action, where=KeyContext.LIST, group=Group.SESSION)
_fleet = partial(Action, where=KeyContext.LIST, group=Group.FLEET)
_sandbox = partial(Action, where=KeyContext.LIST, group=Group.SANDBOX)
_view = partial(Action, where=KeyContext.LIST, group=Group.VIEW)
_kasmon = partial(Action, where=KeyContext.LIST, group=Group.KASMON)
_sandbox_screen = partial(
    Action, where=KeyContext.SANDBOX, group=Group.SANDBOX, run_by=("sandbox/screen.py:SandboxScreen",)
)
_finish = partial(
    Action, where=KeyContext.FINISH, group=Group.FINISH, run_by=("finish/controller.py:FinishController",)
)
_finish_screen = partial(_finish, run_by=("finish/screen.py:FinishScreen",))
_filter = partial(Action, where=KeyContext.FILTER, group=Group.VIEW)
_card = partial(Action, where=KeyContext.CARD, group=Group.REQUEST, run_by=("permissions/card/card.py:PermissionCard",))
_inbox = partial(
    Action, where=KeyContext.INBOX, group=Group.REQUEST, run_by=("permissions/inbox/screen.py:InboxScreen",)
)
_board = partial(Action, where=KeyContext.BOARD, group=Group.BOARD, run_by=("plan_board/screen.py:PlanBoardScreen",))
_terminal = partial(Action, where=KeyContext.TERMINAL, group=Group.INSIDE)
_code_box = partial(Action, where=KeyContext.CODE, group=Group.INSIDE, run_by=("transcript/prompt_box.py:CodeBox",))
_prompt = partial(Action, where=KeyContext.PROMPT, group=Group.INSIDE)
_in_box = partial(_prompt, run_by=(_PROMPT_BOX,))
_reading = partial(Action, where=KeyContext.READING, group=Group.READING)
_reading_text = partial(_reading, run_by=(APP, _SCROLLBACK))
_scrollback = partial(Action, where=KeyContext.TEXT, group=Group.READING, run_by=(_SCROLLBACK,))
_find_bar = partial(Action, where=KeyContext.FIND, group=Group.READING, run_by=(APP, _SCROLLBACK, _REVIEW_SCREEN))
_review = partial(Action, where=KeyContext.REVIEW, group=Group.REVIEW, run_by=(_REVIEW_SCREEN,))
_review_comment = partial(_review, run_by=(_REVIEW_SCREEN, "review/dialogs.py:CommentsDialog"))
_queue = partial(Action, where=KeyContext.QUEUE, group=Group.QUEUE)
_search = partial(Action, where=KeyContext.SEARCH, group=Group.SEARCH, run_by=("search/screen.py:SearchScreen",))
_everywhere = partial(Action, where=KeyContext.EVERYWHERE)

DETACHES: Final = "ctrl+]"
"""The key by which kasmon's tmux server detaches, so that the user comes back from `attach`."""


class Keys:
    """The rows of the key table, each named as its id."""

    DOWN = _move(("j", "down"), "down", "Next session", palette=False)
    UP = _move(("k", "up"), "up", "Previous session", palette=False)
    PAGE_DOWN = _move(("pagedown", "ctrl+d"), "page down", "Page down", palette=False)
    PAGE_UP = _move(("pageup", "ctrl+u"), "page up", "Page up", palette=False)
    TOP = _move(("home",), "top", "First session", palette=False)
    BOTTOM = _move(("G", "end"), "bottom", "Last session", palette=False)
    NEXT = _move(("w",), "next", "Jump to next session that needs attention", offered=Offer.SOMEWHERE)
    NEXT_INSIDE = _everywhere(("f6",), "open next", "Open next session that needs attention", group=Group.MOVE)
    OPEN = _session(("enter",), "open", "Open session", offered=Offer.SOMEWHERE)
    INBOX = _everywhere(("i", "f2"), "requests", "Review pending requests", group=Group.REQUEST)
    ALL_REQUESTS = _everywhere(("I", "f4"), "inbox", "Open inbox (all pending requests)", group=Group.REQUEST)
    NEW = _fleet(("n",), "new", "New session…", offered=Offer.ALWAYS)
    ADOPT = _fleet(("t",), "adopt", "Adopt a running tmux pane…")
    MESSAGE = _session(("m",), "message", "Send a prompt…", offered=Offer.RUNNING)
    INTERRUPT = _session(("c",), "interrupt", "Interrupt the current turn")
    STOP = _session(("x",), "stop", "Stop session…", offered=Offer.RUNNING)
    HIBERNATE = _session(("b",), "hibernate", "Hibernate idle session: free its memory until next use")
    HIBERNATE_IDLE = _fleet(("K",), "hibernate idle", "Hibernate sessions idle for the longest time…")
    ATTACH = _session(
        ("o",), "attach", f"Attach to terminal full screen ({DETACHES} detaches)", offered=Offer.LIVE_TERMINAL
    )
    FREEZE = _sandbox(("z",), "pause", "Pause sandbox (memory stays in RAM)", offered=Offer.AWAKE)
    WAKE = _sandbox(("u",), "resume", "Resume sandbox, or a program that Ctrl+Z stopped", offered=Offer.ASLEEP)
    PAUSE_BOX = _sandbox(("P",), "pause to disk", "Pause sandbox to disk", offered=Offer.PAUSABLE)
    KEEP = _sandbox(("s",), "checkpoint", "Create checkpoint", offered=Offer.KEEPING)
    FORK = _sandbox(("f",), "fork", "Fork sandbox…")
    SANDBOX = _sandbox(("H",), "history", "Sandbox history, checkpoints and usage", offered=Offer.SANDBOXED)
    FREEZE_ALL = _sandbox(("Z",), "pause all", "Pause all sandboxes…")
    BOX_DOWN = _sandbox_screen(("j", "down"), "down", "Next entry")
    BOX_UP = _sandbox_screen(("k", "up"), "up", "Previous entry")
    BOX_TOP = _sandbox_screen(("g", "home"), "newest", "Newest entry")
    BOX_BOTTOM = _sandbox_screen(("G", "end"), "oldest", "Oldest entry")
    BOX_READ_ON = _sandbox_screen(("space", "pagedown", "ctrl+d"), "page down", "Page down in details")
    BOX_READ_BACK = _sandbox_screen(("pageup", "ctrl+u"), "page up", "Page up in details")
    BOX_DIFF = _sandbox_screen(("D", "enter"), "diff", "Show what this turn changed")
    BOX_RESTORE = _sandbox_screen(("r",), "restore", "Restore this checkpoint…")
    BOX_FORK = _sandbox_screen(("f",), "fork", "Fork from this checkpoint…")
    BOX_FORK_NOW = _sandbox_screen(("F",), "fork now", "Fork current state…")
    BOX_REPLAY = _sandbox_screen(("p",), "replay", "Replay up to here in a new sandbox…")
    BOX_ALLOW = _sandbox_screen(("a",), "allow", "Allow the blocked host…")
    BOX_KEEP = _sandbox_screen(("s",), "checkpoint", "Create checkpoint")
    BOX_FREEZE = _sandbox_screen(("z",), "pause", "Pause sandbox (memory stays in RAM)")
    BOX_PAUSE = _sandbox_screen(("P",), "pause to disk", "Pause sandbox to disk")
    BOX_WAKE = _sandbox_screen(("u",), "resume", "Resume sandbox")
    LEAVE_BOX = _sandbox_screen(("escape", "q"), "leave", "Back to the list")
    RESTART = _session(("R",), "restart", "Restart ended session", offered=Offer.ENDED)
    LOG_IN = _session(("A",), "log in", "Log in to the agent in a terminal…", offered=Offer.LOGGED_OUT)
    MOVE = _session(("V",), "move", "Move session to a terminal or to structured mode…")
    EXPLAIN = _session((), "explain", "Explain status: evidence and recent changes")
    EXPORT = _session((), "export", "Export transcript to Markdown")
    RENAME = _session(("r",), "rename", "Rename session…")
    TAG = _session(("T",), "tags", "Edit tags…")
    FORGET = _session(("X",), "remove", "Remove ended session from list…", offered=Offer.ENDED)
    MARK_VIEWED = _session(("L",), "mark viewed", "Mark finished session as viewed", offered=Offer.UNVIEWED)
    DIFF = _session(("D",), "diff", "Review changes of the branch or of a turn")
    FINISH = _session(("F",), "finish", "Finish branch: commit, push, merge, discard…", offered=Offer.BRANCHED)
    SEND_FEEDBACK = _session(("f8",), "fix", "Send failed checks and review comments to the agent")
    FINISH_FIX = _finish(("f", "f8"), "fix", "Send failed checks and comments to the agent")
    FINISH_COMMIT = _finish(("c",), "commit", "Commit all changes…")
    FINISH_MESSAGE = _finish(("a",), "ask", "Ask the agent for a commit message")
    FINISH_UPDATE = _finish(("u",), "update", "Update from the base: rebase or merge…")
    FINISH_PUSH = _finish(("p",), "push", "Push…")
    FINISH_PROPOSE = _finish(("P",), "pull request", "Push, and open a pull request…")
    FINISH_MERGE = _finish(("m",), "merge", "Merge into the base…")
    FINISH_MERGE_PLAN = _finish(("M",), "merge all", "Merge overlapping branches…")
    FINISH_TAKE_OVER = _finish(("t",), "take over", "Stage its changes in your checkout…")
    FINISH_DISCARD = _finish(("X",), "discard", "Remove the worktree and its branch…")
    FINISH_DIFF = _finish_screen(("D",), "diff", "Show what the branch changed")
    FINISH_REFRESH = _finish(("r",), "refresh", "Read the branch again")
    FINISH_DOWN = _finish_screen(("space", "pagedown", "ctrl+d"), "page down", "Page down")
    FINISH_UP = _finish_screen(("pageup", "ctrl+u"), "page up", "Page up")
    LEAVE_FINISH = _finish_screen(("escape", "q"), "leave", "Back to the list")
    BROADCAST = _fleet(("M",), "broadcast", "Broadcast a prompt to all agents in the list…")
    FILTER = _view(("/",), "filter", "Filter (text, state:asking, wave:2, machine:gpu-1)", offered=Offer.SESSIONS)
    SHOW_ALL = _view(("escape",), "clear filter", "Clear filter")
    FILTER_KEEP = _filter(("enter", "down", "up"), "apply", "Apply filter", offered=Offer.ALWAYS)
    FILTER_DROP = _filter(("escape",), "clear", "Clear filter", offered=Offer.ALWAYS)
    SEARCH = _everywhere(("ctrl+f", "f7"), "search", "Search all transcripts and terminal output", group=Group.VIEW)
    SORT = _view(("S",), "sort", "Sort by attention, name, agent, age, cost, wave, machine")
    WAVES = _view(("W",), "waves", "Toggle grouping by wave")
    GROUP = _view(("g",), "group", "Group by tag, folder, plan, machine, account")
    SAVE_FILTER = _view(("=",), "save filter", "Save filter as a tab; rename or remove its tab…")
    TAB_ON = _view(("]",), "next tab", "Next saved filter", palette=False)
    TAB_BACK = _view(("[",), "previous tab", "Previous saved filter", palette=False)
    COLUMNS = _view(("|",), "columns", "Choose columns and their order…")
    BOARD = _everywhere(("B", "f5"), "wave board", "Open wave board (running plans)", group=Group.VIEW)
    FOLD = _view(("h", "left"), "fold", "Fold group", palette=False)
    UNFOLD = _view(("l", "right"), "unfold", "Unfold group", palette=False)
    PREVIEW = _view(("space",), "preview", "Toggle preview")
    PIN = _view(("p",), "pin", "Pin preview to this session")
    PREVIEW_UP = _view(("shift+pageup",), "preview up", "Scroll preview up", palette=False)
    PREVIEW_DOWN = _view(("shift+pagedown",), "preview down", "Scroll preview down", palette=False)
    ALLOW_ONCE = _card(("a",), "once", "Allow once")
    ALLOW_ALWAYS = _card(("A",), "always", "Always allow (adds the rule shown)")
    DENY = _card(("d",), "deny", "Deny (with a reason)")
    DENY_ALWAYS = _card(("D",), "never", "Always deny (adds the rule shown)")
    DENY_AND_END = _card(("c",), "deny and interrupt", "Deny and interrupt the turn")
    REACH = _card(("s",), "scope", "Change the scope of the rule")
    OWN_WORDS = _card(("o",), "custom answer", "Write a custom answer")
    TOGETHER = _card(("T",), "similar", "Answer similar requests together")
    EDIT = _card(("e",), "edit", "Edit input, then allow")
    LATER = _card(("z",), "snooze", "Snooze (agent keeps waiting)")
    REQUEST_BACK = _card(("left",), "previous", "Previous request")
    REQUEST_ON = _card(("right",), "next", "Next request")
    READ_ON = _card(("space", "pagedown", "ctrl+d"), "page down", "Page down")
    READ_BACK = _card(("pageup", "ctrl+u"), "page up", "Page up")
    LINE_ON = _card(("j", "down"), "line down", "Line down")
    LINE_BACK = _card(("k", "up"), "line up", "Line up")
    READ_TOP = _card(("home",), "top", "Top")
    READ_END = _card(("end",), "end", "End")
    CLOSE = _card(("escape",), "close", "Close (sends no answer)")
    INBOX_DOWN = _inbox(("j", "down"), "down", "Next request")
    INBOX_UP = _inbox(("k", "up"), "up", "Previous request")
    INBOX_TOP = _inbox(("g",), "top", "First request")
    INBOX_BOTTOM = _inbox(("G",), "bottom", "Last request")
    MARK = _inbox(("space",), "mark", "Mark, to answer several together")
    TO_REQUEST = _inbox(("tab",), "switch focus", "Switch focus between list and request")
    LEAVE_INBOX = _inbox(("escape", "q"), "leave", "Leave (sends no answer)")
    TASK_DOWN = _board(("j", "down"), "down", "Next task")
    TASK_UP = _board(("k", "up"), "up", "Previous task")
    WAVE_BACK = _board(("h", "left"), "previous wave", "Previous wave")
    WAVE_ON = _board(("l", "right"), "next wave", "Next wave")
    TASK_TOP = _board(("g", "home"), "first", "First task")
    TASK_BOTTOM = _board(("G", "end"), "last", "Last task")
    BOARD_DOWN = _board(("pagedown", "ctrl+d"), "page down", "Page down")
    BOARD_UP = _board(("pageup", "ctrl+u"), "page up", "Page up")
    TASK_NEXT = _board(("w",), "next", "Next task that needs attention")
    TASK_OPEN = _board(("enter",), "open", "Open the task's session")
    TASK_READ = _board(("space",), "details", "Task details: prompt, check, failures")
    TASK_DIFF = _board(("D",), "diff", "Show what the task changed")
    PLAN_ADVANCE = _board(("A",), "start next wave", "Start next wave")
    TASK_ACCEPT = _board(("a",), "accept", "Accept task as done")
    TASK_RETRY = _board(("r",), "retry", "Retry task…")
    TASK_REPLACE = _board(("R",), "replace", "Retry task with another agent…")
    TASK_SKIP = _board(("s",), "skip", "Skip task…")
    PLAN_PAUSE = _board(("p",), "pause", "Pause or resume plan")
    PLAN_EDIT = _board(("e",), "review changes", "Review and apply plan file changes…")
    PLAN_ABORT = _board(("X",), "abort", "Abort plan…")
    PLAN_ON = _board(("]", "tab"), "next plan", "Next plan")
    PLAN_BACK = _board(("[", "shift+tab"), "previous plan", "Previous plan")
    LEAVE_BOARD = _board(("escape", "q"), "leave", "Back to the list")
    LEAVE_FOCUS = _terminal(("ctrl+]", "f12"), "leave", "Back to the list", offered=Offer.ALWAYS)
    RUN_CODE = _code_box(("enter",), "run", "Run code", offered=Offer.ALWAYS)
    INTERPRETER = _code_box(("tab",), "interpreter", "Switch interpreter: python, bash, node", offered=Offer.ALWAYS)
    READ_RUN = _code_box(("shift+tab",), "read", "Read and search the output", offered=Offer.ALWAYS)
    SUBMIT = _in_box(("enter",), "send", "Send prompt", offered=Offer.ALWAYS)
    NEWLINE = _in_box(("ctrl+j", "alt+enter", "shift+enter"), "new line", "Insert a new line", offered=Offer.ALWAYS)
    SUBMIT_LATER = _in_box(("alt+q",), "queue", "Queue prompt until the turn ends")
    BREAK_OFF = _prompt(("ctrl+c",), "interrupt", "Interrupt the current turn", offered=Offer.INTERRUPTIBLE)
    HISTORY_BACK = _in_box(("up",), "previous prompt", "Previous prompt (from history)")
    HISTORY_ON = _in_box(("down",), "next prompt", "Next prompt (from history)")
    HISTORY_SEARCH = _in_box(("ctrl+r",), "search prompts", "Search earlier prompts")
    SHOW_IMAGE = _prompt(("alt+p",), "pictures", "Show the pictures that the prompt mentions")
    PASTE_IMAGE = _prompt(("alt+v",), "paste picture", "Paste the picture in the clipboard")
    EDIT_EARLIER = _prompt(("alt+e",), "edit earlier", "Edit an earlier prompt, fork there… (esc esc)")
    READ = _prompt(("tab",), "read", "Read and search the transcript", offered=Offer.ALWAYS)
    QUEUE = _prompt(("shift+tab",), "queue", "Edit queued prompts", offered=Offer.QUEUED)
    READ_UP = _prompt(("pageup",), "scroll up", "Scroll up")
    READ_DOWN = _prompt(("pagedown",), "scroll down", "Scroll down")
    LEAVE_PROMPT = _prompt(("escape",), "leave", "Back to the list", offered=Offer.ALWAYS, run_by=(APP, _PROMPT_BOX))
    READ_LINE_DOWN = _reading_text(("j", "down"), "down", "Line down")
    READ_LINE_UP = _reading_text(("k", "up"), "up", "Line up")
    READ_PAGE_DOWN = _reading_text(("pagedown", "ctrl+d", "space"), "page down", "Page down")
    READ_PAGE_UP = _reading_text(("pageup", "ctrl+u", "b"), "page up", "Page up")
    READ_TO_TOP = _reading_text(("g", "home"), "top", "Top")
    READ_TO_END = _reading_text(("G", "end"), "end", "End")
    TURN_BACK = _reading(("[",), "prev turn", "Previous turn", offered=Offer.ALWAYS)
    TURN_ON = _reading(("]",), "next turn", "Next turn", offered=Offer.ALWAYS)
    FIND = _reading_text(("/",), "search", "Search upwards", offered=Offer.ALWAYS)
    FIND_ON = _reading_text(("n",), "next match", "Next match (upwards)", offered=Offer.ALWAYS)
    FIND_BACK = _reading_text(("N",), "prev match", "Previous match (downwards)")
    TOGGLE = _reading_text(("enter",), "unfold", "Fold or unfold", offered=Offer.ALWAYS)
    COPY = _reading_text(("y",), "copy", "Copy code block, answer or output", offered=Offer.ALWAYS)
    COPY_ANSWER = _reading_text(("Y",), "copy answer", "Copy last answer")
    READ_IMAGE = _reading(("p",), "pictures", "Show the pictures of the prompt here")
    OPEN_LINK = _reading(("o",), "link", "Show a link's address, then open it…")
    EXPORT_TURN = _reading(("e",), "export turn", "Export this turn to Markdown")
    SHARE = _reading(("E",), "share", "Write the session to one HTML file…")
    WRITE = _reading(("tab", "m"), "write", "Write a prompt", offered=Offer.ALWAYS)
    STOP_READING = _reading_text(("escape", "q"), "leave", "Back", offered=Offer.ALWAYS)
    TEXT_SELECT = _scrollback(("v",), "select", "Start selection")
    TEXT_LEFT = _scrollback(("left", "h"), "left", "Character left")
    TEXT_RIGHT = _scrollback(("right", "l"), "right", "Character right")
    FIND_KEEP = _find_bar(("enter", "down", "up"), "done", "Close search at this match", offered=Offer.ALWAYS)
    FIND_DROP = _find_bar(("escape",), "cancel", "Close search and return", offered=Offer.ALWAYS)
    REVIEW_DOWN = _review(("j", "down"), "down", "Line down")
    REVIEW_UP = _review(("k", "up"), "up", "Line up")
    REVIEW_PAGE_DOWN = _review(("pagedown", "ctrl+d", "space"), "page down", "Page down")
    REVIEW_PAGE_UP = _review(("pageup", "ctrl+u"), "page up", "Page up")
    REVIEW_TOP = _review(("g", "home"), "top", "Top of the file")
    REVIEW_END = _review(("G", "end"), "end", "End of the file")
    REVIEW_FILE_ON = _review(("]", "tab"), "next file", "Next file")
    REVIEW_FILE_BACK = _review(("[", "shift+tab"), "prev file", "Previous file")
    REVIEW_CHANGE_ON = _review(("J", "}"), "next change", "Next change, also in the next file")
    REVIEW_CHANGE_BACK = _review(("K", "{"), "prev change", "Previous change, also in the previous file")
    REVIEW_FOLD = _review(("enter",), "fold", "Fold or unfold hunk")
    REVIEW_FOLD_ALL = _review(("z",), "fold all", "Fold or unfold all hunks of the file")
    REVIEW_COLUMNS = _review(("s",), "two columns", "Show old and new side by side, or in one column")
    REVIEW_FIND = _review(("/",), "search", "Search in all files")
    REVIEW_FIND_ON = _review(("n",), "next match", "Next match")
    REVIEW_FIND_BACK = _review(("N",), "prev match", "Previous match")
    REVIEW_SELECT = _review(("v",), "select", "Select lines from here on")
    REVIEW_COMMENT = _review_comment(("c",), "comment", "Comment on the line or selection; edit the comment")
    REVIEW_COMMENT_DELETE = _review_comment(("d",), "delete", "Delete the comment here…")
    REVIEW_COMMENT_RESOLVE = _review_comment(("x",), "resolve", "Resolve the comment here, or reopen it")
    REVIEW_COMMENTS = _review(("l",), "comments", "List all comments, to edit or go to one")
    REVIEW_SEND = _review_comment(("S",), "send comments", "Send the open comments to the agent…")
    REVIEW_REVERT = _review(("r",), "revert", "Revert hunk in the worktree…")
    REVIEW_STAGE = _review(("a",), "stage", "Stage the unstaged changes of the hunk…")
    REVIEW_UNDO = _review(("u",), "undo", "Undo the last reverted or staged hunk")
    REVIEW_BRANCH = _review(("b",), "branch", "Show all changes of the branch")
    REVIEW_LAST_TURN = _review(("t",), "last turn", "Show the changes of the last turn")
    REVIEW_TURN_BACK = _review(("<",), "earlier turn", "Show the previous turn")
    REVIEW_TURN_ON = _review((">",), "later turn", "Show the next turn")
    REVIEW_EDIT = _review(("e",), "edit", "Open the file at this line in $EDITOR")
    REVIEW_LEAVE = _review(("escape", "q"), "leave", "Back")
    QUEUE_DOWN = _queue(("j", "down"), "down", "Next prompt")
    QUEUE_UP = _queue(("k", "up"), "up", "Previous prompt")
    QUEUE_LATER = _queue(("J", "shift+down"), "move down", "Move prompt down", offered=Offer.ALWAYS)
    QUEUE_SOONER = _queue(("K", "shift+up"), "move up", "Move prompt up", offered=Offer.ALWAYS)
    QUEUE_CHANGE = _queue(("enter", "e"), "edit", "Edit prompt", offered=Offer.ALWAYS)
    QUEUE_DROP = _queue(("d", "delete"), "delete", "Delete prompt", offered=Offer.ALWAYS)
    LEAVE_QUEUE = _queue(("escape", "tab"), "back", "Back to the prompt box", offered=Offer.ALWAYS)
    SEARCH_DOWN = _search(("down",), "down", "Next match")
    SEARCH_UP = _search(("up",), "up", "Previous match")
    SEARCH_PAGE_DOWN = _search(("pagedown",), "page down", "Page down")
    SEARCH_PAGE_UP = _search(("pageup",), "page up", "Page up")
    SEARCH_OPEN = _search(("enter",), "open", "Open match")
    LEAVE_SEARCH = _search(("escape",), "back", "Back to the list")
    READ_STORY = _session(("v",), "transcript", "Open transcript")
    CONFIGURE = _everywhere(("C", "f3"), "model", "Change model and permission mode…", group=Group.SESSION)
    MACHINES = _kasmon((), "machines", "Registered machines: list, add, remove")
    SETTINGS = _kasmon(("comma",), "settings", "Theme and config file path")
    HELP = _everywhere(("?", "f1"), "help", "Help", group=Group.KASMON, offered=Offer.ALWAYS)
    PALETTE = _everywhere(("ctrl+p",), "palette", "Search commands and sessions", group=Group.KASMON, palette=False)
    QUIT = _kasmon(("q", "ctrl+c"), "quit", "Quit (agents keep running)", offered=Offer.ALWAYS)


ACTIONS: Final = tuple(row for row in vars(Keys).values() if isinstance(row, Action))
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
