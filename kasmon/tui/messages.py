"""What widgets tell the app: what is wanted, what was chosen, what happened there."""

from textual.message import Message

from kasmon.model.command import Mode, ReceiptId
from kasmon.model.permission import RequestId, SessionId
from kasmon.model.sandbox import Interpreter
from kasmon.model.searched import Hit
from kasmon.tui.order import Sort
from kasmon.tui.world import Steer, Wanted


class CommandWanted(Message):
    """Somebody at the screen wants something done in the world below."""

    def __init__(self, wanted: Wanted, *, token: int = 0) -> None:
        super().__init__()
        self.wanted, self.token = wanted, token
        """*token* is the waiting dialog's own; the outcome comes back to the dialog that has it."""


class SearchWanted(Message):
    """All sessions are to be searched for these words, and no longer for others; for none where they are empty."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class HitOpened(Message):
    """Enter or a second click on a place that a search found."""

    def __init__(self, hit: Hit) -> None:
        super().__init__()
        self.hit = hit


class SearchLeft(Message):
    """Nobody searches any more."""


class SessionSelected(Message):
    """The list's cursor is on this session now; None on a header or in an empty list."""

    def __init__(self, session: SessionId | None) -> None:
        super().__init__()
        self.session = session


class PlaceChanged(Message):
    """The keyboard or the cursor is somewhere else: other keys may matter now."""


class SessionOpened(Message):
    """Enter or a double click on a session: go into it."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class StateClicked(Message):
    """A click on how many sessions are in this state."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self.state = state


class SortWanted(Message):
    """A click on a column's title."""

    def __init__(self, sort: Sort) -> None:
        super().__init__()
        self.sort = sort


class FilterChanged(Message):
    """The filter's text is this now."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class FilterLeft(Message):
    """The filter gave the keyboard back to the list; *kept* says whether its text stays."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept


class ActionWanted(Message):
    """A click, or a choice in the palette, on something that has a key."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action = action


class PromptEntered(Message):
    """Enter in the prompt box.

    Args:
        later: it waits until the turn has ended.
        changes: the prompt that waits and says this from now on, where it is no new one.
    """

    def __init__(self, session: SessionId, text: str, *, later: bool = False, changes: ReceiptId | None = None) -> None:
        super().__init__()
        self.session, self.text = session, text
        self.later, self.changes = later, changes


class CodeEntered(Message):
    """Enter in the box of an interpreter session."""

    def __init__(self, session: SessionId, interpreter: Interpreter, code: str) -> None:
        super().__init__()
        self.session, self.interpreter, self.code = session, interpreter, code


class ConfinedWanted(Message):
    """What this agent's sandbox would get is to be told to the dialog that asks."""

    def __init__(self, agent: str, mode: Mode | None, workdir: str, tier: str) -> None:
        super().__init__()
        self.agent, self.mode, self.workdir, self.tier = agent, mode, workdir, tier


class FolderNamed(Message):
    """What there is to say of this folder is to be told to the dialog that asks."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder


class SandboxLooked(Message):
    """What is known of this session's sandbox is to be looked up anew."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class SandboxDeed(Message):
    """Something is wanted of a session's sandbox: *deed* is the key table's name for it.

    Args:
        checkpoint: the one that is meant; empty for now.
        turn: the turn that is meant.
        host: whom it is to reach.
    """

    def __init__(self, session: SessionId, deed: str, *, checkpoint: str = "", turn: int = 0, host: str = "") -> None:
        super().__init__()
        self.session, self.deed = session, deed
        self.checkpoint, self.turn, self.host = checkpoint, turn, host


class FilesWanted(Message):
    """Somebody writes the name of a file of this session's folder."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class CardLeft(Message):
    """The permission card wants to close; *put_off* are the requests that must not rise by themselves again."""

    def __init__(self, put_off: tuple[RequestId, ...]) -> None:
        super().__init__()
        self.put_off = put_off


class InboxLeft(Message):
    """The inbox wants to close; *put_off* as for a card."""

    def __init__(self, put_off: tuple[RequestId, ...]) -> None:
        super().__init__()
        self.put_off = put_off


class BoardLeft(Message):
    """The wave board wants to close."""


class NewAgentWanted(Message):
    """Another agent is wanted for a task: *wanted*, once it says which."""

    def __init__(self, wanted: Steer) -> None:
        super().__init__()
        self.wanted = wanted


class DiffWanted(Message):
    """What this session changed is to be shown."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session
