"""Requests that one key may answer together (`model.request_groups` decides which), in full as rows to read. Pure."""

from collections.abc import Sequence

import msgspec

from kasmon.model.permission import Request
from kasmon.model.transcript.request_text import RequestDocument, sheet
from kasmon.model.transcript.text import BLANK, Margin, TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.permissions.queue import PermissionSnapshot


class GroupedRequest(msgspec.Struct, frozen=True):
    """One of several requests in a list, as the user read it."""

    sheet: RequestDocument
    name: str
    place: str
    """Its agent and its folder, which decide what a command does there."""

    @property
    def request(self) -> Request:
        return self.sheet.request


def find_left_out(listed: Sequence[GroupedRequest], waiting: Sequence[Request]) -> tuple[GroupedRequest, ...]:
    """Return those *listed* that are no longer pending as they were read: answered, withdrawn, or changed."""
    still = {(ask.id, ask.digest) for ask in waiting}
    return tuple(entry for entry in listed if (entry.request.id, entry.request.digest) not in still)


def rows(listed: Sequence[GroupedRequest], width: int) -> list[TextLine]:
    """Return each of *listed* in rows of at most *width* cells: its session, then all of it."""
    drawn: list[TextLine] = []
    for number, entry in enumerate(listed, 1):
        mark: Margin = ((f"{number} ", Token.NUMBER),)
        under: Margin = ((" " * (len(str(number)) + 1), Token.NUMBER),)
        drawn += [BLANK] if drawn else []
        drawn += wrap([(entry.name, Token.STRONG), (f"  {entry.place}", Token.FAINT)], width, mark, under)
        drawn += entry.sheet.rows(width)
    return drawn


def build_entry(request: Request, asked: PermissionSnapshot) -> GroupedRequest:
    session = asked.sessions.get(request.session)
    name = session.label if session is not None else request.session
    place = f"{session.agent} in {session.workdir}" if session is not None else ""
    return GroupedRequest(sheet(request, asked.card_of(request).secrets), clean_line(name), clean_line(place))
