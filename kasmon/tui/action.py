"""One row of the table of actions: what it does, by which keys, where these count, and where it is offered."""

from enum import Enum, StrEnum, auto

import msgspec


class KeyContext(StrEnum):
    """What must have the keyboard for a key to count."""

    LIST = "in the list"
    FILTER = "in the filter"
    CARD = "in a request"
    INBOX = "in the inbox"
    BOARD = "on the wave board"
    PROMPT = "in the prompt box"
    CODE = "in the code box"
    SANDBOX = "on the sandbox screen"
    READING = "in a transcript or scrollback"
    TEXT = "in scrollback"
    FIND = "in the find bar"
    QUEUE = "in the prompt queue"
    SEARCH = "in the search of all sessions"
    TERMINAL = "in a terminal"
    EVERYWHERE = "everywhere"


class HelpGroup(StrEnum):
    """The headings of the help."""

    MOVE = "Navigate"
    SESSION = "Session"
    SANDBOX = "Sandbox"
    FLEET = "All sessions"
    VIEW = "View"
    REQUEST = "Requests"
    BOARD = "Wave board"
    INSIDE = "Open session"
    READING = "Transcript and scrollback"
    QUEUE = "Prompt queue"
    SEARCH = "Search in all sessions"
    KASMON = "kasmon"


class FooterOffer(Enum):
    """When the line at the bottom offers an action."""

    NEVER = auto()
    ALWAYS = auto()
    SOMEWHERE = auto()
    """While there is a session, or a heading, to do it to."""
    SESSIONS = auto()
    """While there is a session at all, in the list or hidden by what the list is narrowed to."""
    RUNNING = auto()
    """To a session whose agent runs."""
    ENDED = auto()
    """To one whose agent does not."""
    LIVE_TERMINAL = auto()
    """To one that runs in a terminal."""
    INTERRUPTIBLE = auto()
    """To one whose agent can be interrupted."""
    QUEUED = auto()
    """To one for whom prompts wait."""
    AWAKE = auto()
    """To one whose sandbox can be put to sleep."""
    PAUSABLE = auto()
    """To one whose sandbox can be put to sleep with its memory on disk."""
    ASLEEP = auto()
    """To one whose sandbox sleeps, or whose agent Ctrl-Z stopped."""
    KEEPING = auto()
    """To one of whose sandbox checkpoints are kept."""
    UNVIEWED = auto()
    """To one that has finished a turn which the person has not looked at."""
    SANDBOXED = auto()
    """To one that has a sandbox."""


class Action(msgspec.Struct, frozen=True):
    """One thing that can be done by a key."""

    id: str
    keys: tuple[str, ...]
    label: str
    """One or two words, for the line at the bottom and the palette."""
    help: str
    where: KeyContext
    group: HelpGroup
    offered: FooterOffer = FooterOffer.NEVER
    """Whether it stands in the line at the bottom, which ends with the last two that do."""
    palette: bool = True
    """Whether the palette offers it, where its place is one from which the palette is called."""

    @property
    def is_in_palette(self) -> bool:
        """Whether the palette offers it: what counts in the list, or everywhere."""
        return self.palette and self.where in (KeyContext.LIST, KeyContext.EVERYWHERE)
