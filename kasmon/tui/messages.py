"""What widgets tell the app: what is wanted, what was chosen, what happened there."""

from textual.message import Message

from kasmon.model.commands import Mode, ReceiptId
from kasmon.model.permission import RequestId, SessionId
from kasmon.model.sandbox.policy import Interpreter
from kasmon.model.transcript.search_text import SearchHit
from kasmon.tui.gateway.protocol import DecideOnPlan, Split, Wanted
from kasmon.tui.session_list.order import SortOrder


class CommandRequested(Message):
    """Somebody at the screen wants something done in the world below."""

    def __init__(self, wanted: Wanted, *, token: int = 0) -> None:
        super().__init__()
        self.wanted, self.token = wanted, token
        """*token* is the waiting dialog's own; the outcome comes back to the dialog that has it."""


class SearchRequested(Message):
    """All sessions are to be searched for these words, and no longer for others; for none where they are empty."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class HitOpened(Message):
    """Enter or a second click on a place that a search found."""

    def __init__(self, hit: SearchHit) -> None:
        super().__init__()
        self.hit = hit


class SearchClosed(Message):
    """Nobody searches any more."""


class SessionSelected(Message):
    """The list's cursor is on this session now; None on a header or in an empty list."""

    def __init__(self, session: SessionId | None) -> None:
        super().__init__()
        self.session = session


class KeyContextChanged(Message):
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


class SortRequested(Message):
    """A click on a column's title."""

    def __init__(self, sort: SortOrder) -> None:
        super().__init__()
        self.sort = sort


class SplitChanged(Message):
    """A person dragged the divider between list and preview."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.split = split


class FilterChanged(Message):
    """The filter's text is this now."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class FilterClosed(Message):
    """The filter gave the keyboard back to the list; *kept* says whether its text stays."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept


class ActionRequested(Message):
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


class SandboxPreviewRequested(Message):
    """What this agent's sandbox would get is to be told to the dialog that asks."""

    def __init__(self, agent: str, mode: Mode | None, workdir: str, tier: str) -> None:
        super().__init__()
        self.agent, self.mode, self.workdir, self.tier = agent, mode, workdir, tier


class FolderNoticeRequested(Message):
    """What there is to say of this folder is to be told to the dialog that asks."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder


class SandboxRefreshRequested(Message):
    """What is known of this session's sandbox is to be looked up anew."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class SandboxActionRequested(Message):
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


class FilesRequested(Message):
    """Somebody writes the name of a file of this session's folder."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class CardClosed(Message):
    """The permission card wants to close; *put_off* are the requests that must not rise by themselves again."""

    def __init__(self, put_off: tuple[RequestId, ...]) -> None:
        super().__init__()
        self.put_off = put_off


class InboxClosed(Message):
    """The inbox wants to close; *put_off* as for a card."""

    def __init__(self, put_off: tuple[RequestId, ...]) -> None:
        super().__init__()
        self.put_off = put_off


class PlanBoardClosed(Message):
    """The wave board wants to close."""


class NewAgentRequested(Message):
    """Another agent is wanted for a task: *wanted*, once it says which."""

    def __init__(self, wanted: DecideOnPlan) -> None:
        super().__init__()
        self.wanted = wanted


class DiffRequested(Message):
    """What this session changed is to be shown."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session
