"""The `Action` type: one row of the key table, with its keys, the context they count in, and where it is offered."""

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum, auto
from typing import Final, TypeAlias

import msgspec


class KeyContext(StrEnum):
    """Where the keyboard focus must be for a key to count."""

    LIST = "in the list"
    FILTER = "in the filter"
    CARD = "in a request"
    INBOX = "in the inbox"
    BOARD = "on the wave board"
    PROMPT = "in the prompt box"
    CODE = "in the code box"
    SANDBOX = "on the sandbox screen"
    FINISH = "on the finish screen"
    READING = "in a transcript or scrollback"
    REVIEW = "in the review of changes"
    TEXT = "in scrollback"
    FIND = "in the find bar"
    QUEUE = "in the prompt queue"
    SEARCH = "in the search of all sessions"
    TERMINAL = "in a terminal"
    EVERYWHERE = "everywhere"


class HelpGroup(StrEnum):
    """The section headings of the help."""

    MOVE = "Navigate"
    SESSION = "Session"
    SANDBOX = "Sandbox"
    FINISH = "Finish screen"
    FLEET = "All sessions"
    VIEW = "View"
    REQUEST = "Requests"
    BOARD = "Wave board"
    INSIDE = "Open session"
    READING = "Transcript and scrollback"
    REVIEW = "Review of changes"
    QUEUE = "Prompt queue"
    SEARCH = "Search in all sessions"
    KASMON = "kasmon"


class FooterOffer(Enum):
    """When the key bar at the bottom offers an action."""

    NEVER = auto()
    ALWAYS = auto()
    SOMEWHERE = auto()
    """While the cursor is on a session or a group heading."""
    SESSIONS = auto()
    """While there is any session, shown or hidden by the filter."""
    RUNNING = auto()
    ENDED = auto()
    """For a session whose agent is not running."""
    LIVE_TERMINAL = auto()
    INTERRUPTIBLE = auto()
    """For a session whose agent can be interrupted."""
    LOGGED_OUT = auto()
    """For a session whose agent requires a log-in and offers one in a terminal."""
    QUEUED = auto()
    AWAKE = auto()
    """For a session whose sandbox can be paused."""
    PAUSABLE = auto()
    """For a session whose sandbox can be paused to disk, memory included."""
    ASLEEP = auto()
    """For a session whose sandbox is paused, or whose agent was stopped by Ctrl-Z."""
    KEEPING = auto()
    """For a session whose sandbox supports checkpoints."""
    UNVIEWED = auto()
    """For a session that finished a turn which the user has not viewed."""
    BRANCHED = auto()
    """For a session that has a worktree of its own."""
    SANDBOXED = auto()


APP: Final = "actions/handlers.py:build_handlers"


class Action(msgspec.Struct, frozen=True):
    """One thing that a key can do: a row of `keymap.Keys`."""

    keys: tuple[str, ...]
    label: str
    """One or two words, for the key bar and the palette."""
    help: str
    where: KeyContext
    group: HelpGroup
    offered: FooterOffer = FooterOffer.NEVER
    """When the key bar shows it; the bar always keeps the last two of those offered."""
    palette: bool = True
    """Whether the palette offers it, provided that the palette can be opened in its context."""
    run_by: tuple[str, ...] = (APP,)
    """What has a handler for it in its table `handlers`: the file in `kasmon/tui`, and the name there."""
    id: str = ""
    """The name of the row in `Keys`, in small letters; `[keys]` of the config uses it."""

    def __set_name__(self, owner: type, name: str) -> None:
        msgspec.structs.force_setattr(self, "id", name.lower())

    @property
    def is_in_palette(self) -> bool:
        """Whether the palette offers it: only actions of the list, and those that count everywhere."""
        return self.palette and self.where in (KeyContext.LIST, KeyContext.EVERYWHERE)


Handlers: TypeAlias = Mapping[Action, Callable[[], object]]
"""The method for each row of the key table that a screen, a box or the app runs."""
