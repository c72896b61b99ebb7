"""Requests that one key may answer together (`model.alike` says which): all of each as rows to read before. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from kasmon.clean import clean_line
from kasmon.model.permission import Request, SessionId
from kasmon.model.session import Session
from kasmon.model.text import BLANK, Line, Margin, Token, fitted
from kasmon.tui.ask_text import Sheet, sheet


class Entry(msgspec.Struct, frozen=True):
    """One of several requests in a list, as the person read it."""

    sheet: Sheet
    name: str
    """What its session is called."""
    place: str
    """Its agent and its folder, which decide what a command does there."""

    @property
    def request(self) -> Request:
        return self.sheet.request


def entries(
    requests: Sequence[Request],
    sessions: Mapping[SessionId, Session],
    known: Mapping[SessionId, tuple[str, ...]],
) -> tuple[Entry, ...]:
    """*requests* as a list shows them; *known* are the secret values of each session."""
    return tuple(_entry(request, sessions.get(request.session), known.get(request.session, ())) for request in requests)


def left_out(listed: Sequence[Entry], waiting: Sequence[Request]) -> tuple[Entry, ...]:
    """Those *listed* that do not wait any more as they were read: answered, withdrawn, or another request now."""
    still = {(ask.id, ask.digest) for ask in waiting}
    return tuple(entry for entry in listed if (entry.request.id, entry.request.digest) not in still)


def rows(listed: Sequence[Entry], width: int) -> list[Line]:
    """Each of *listed* in rows of at most *width* cells: whose it is, then all of it."""
    drawn: list[Line] = []
    for number, entry in enumerate(listed, 1):
        mark: Margin = ((f"{number} ", Token.NUMBER),)
        under: Margin = ((" " * (len(str(number)) + 1), Token.NUMBER),)
        drawn += [BLANK] if drawn else []
        drawn += fitted([(entry.name, Token.STRONG), (f"  {entry.place}", Token.FAINT)], width, mark, under)
        drawn += entry.sheet.rows(width)
    return drawn


def _entry(request: Request, session: Session | None, known: tuple[str, ...]) -> Entry:
    name = session.name if session is not None else request.session
    place = f"{session.agent} in {session.workdir}" if session is not None else ""
    return Entry(sheet(request, known), clean_line(name), clean_line(place))
