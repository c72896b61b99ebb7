"""Toasts: one for each change of a session into a state that needs attention, not repeated while it lasts. Pure."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from kasmon.model.formatting import ending, foremost, lost_why, state_label, state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.sanitize import clean_line

LOUD = ("asking", "lost", "crashed")
MOST = 3


class Toast(msgspec.Struct, frozen=True):
    """A short notification in the corner."""

    title: str
    text: str
    severity: Literal["information", "warning", "error"]
    state: str


def toasts(before: Mapping[SessionId, Session], changed: Iterable[Session]) -> list[Toast]:
    """Return one for each known session that is now asking, lost or crashed; a further request counts too."""
    shown: list[Toast] = []
    for session in changed:
        was = before.get(session.id)
        state = state_name(session)
        if was is None or was.is_unreachable or state not in LOUD:
            continue
        further = state == "asking" and {ask.id for ask in session.requests} - {ask.id for ask in was.requests}
        if state_name(was) != state or further:
            shown.append(_toast(session, state))
    return shown


def shorten(shown: Iterable[Toast]) -> list[Toast]:
    """Return *shown* as shown: of a storm the first two, and how many more there are."""
    shown = list(shown)
    if len(shown) <= MOST:
        return shown
    more = len(shown) - MOST + 1
    worst: Literal["warning", "error"] = "warning"
    if any(toast.severity == "error" for toast in shown[MOST - 1 :]):
        worst = "error"
    return [
        *shown[: MOST - 1],
        Toast(f"{more} more sessions need attention", "They are listed first.", worst, "several"),
    ]


def _toast(session: Session, state: str) -> Toast:
    name = clean_line(session.label)
    if state == "asking":
        ask = foremost(session)
        what = clean_line(f"{ask.tool} {ask.title}".strip()) if ask else clean_line(session.last_line)
        return Toast(f"{name} has a request", what[:200], "warning", state)
    if state == "lost":
        return Toast(f"Lost contact with {name}", lost_why(session)[:200], "error", state)
    why = clean_line(session.end_why)[:200] if session.has_failed_to_start else ending(session)
    return Toast(f"{name} {state_label(session)}", why, "error", state)
