"""The messages that widgets post to the app: selections, requests to show something, and changes."""

from textual.message import Message

from kasmon.model.permission import RequestId, SessionId
from kasmon.model.transcript.search.text import SearchHit
from kasmon.tui.gateway.protocol import Split
from kasmon.tui.session_list.layout import ListLayout
from kasmon.tui.session_list.order import SortOrder


class SearchRequested(Message):
    """Search all sessions for these words, replacing any earlier search; empty stops the search."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self.words = query


class HitOpened(Message):
    """Enter or a second click on a search hit."""

    def __init__(self, hit: SearchHit) -> None:
        super().__init__()
        self.hit = hit


class SearchClosed(Message):
    """The search was closed."""


class SessionSelected(Message):
    """The list's cursor moved to this session; None on a header or in an empty list."""

    def __init__(self, session: SessionId | None) -> None:
        super().__init__()
        self.session = session


class KeyContextChanged(Message):
    """The focus or the cursor moved: other keys may count now."""


class SessionOpened(Message):
    """Enter or a double click on a session: open it."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session


class StateClicked(Message):
    """A click on the number of sessions in this state."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self.state = state


class SortRequested(Message):
    """A click on a column's title."""

    def __init__(self, sort: SortOrder) -> None:
        super().__init__()
        self.sort = sort


class SplitChanged(Message):
    """The user dragged the divider between list and preview."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.split = split


class LayoutChanged(Message):
    """The user arranged the list in another way, which is kept for the next start."""

    def __init__(self, layout: ListLayout) -> None:
        super().__init__()
        self.layout = layout


class FilterChanged(Message):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class FilterClosed(Message):
    """The filter returned the focus to the list; *kept* is whether its text stays."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept


class ActionRequested(Message):
    """A click, or a choice in the palette, on something that has a key."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action = action


class CardClosed(Message):
    """The permission card asks to be closed; *put_off* are the requests that must not pop up again."""

    def __init__(self, put_off: tuple[RequestId, ...]) -> None:
        super().__init__()
        self.put_off = put_off


class PlanBoardClosed(Message):
    """The wave board asks to be closed."""


class DiffRequested(Message):
    """Show what this session changed."""

    def __init__(self, session: SessionId) -> None:
        super().__init__()
        self.session = session
