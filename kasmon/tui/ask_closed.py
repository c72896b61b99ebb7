"""In words: how a request ended while a person was looking at it. Pure."""

from typing import Final

from kasmon.clean import clean_line
from kasmon.model.permission import Closed, Decision
from kasmon.model.session import Session

ANSWERED: Final = {
    Decision.ALLOW: "Allowed once",
    Decision.ALWAYS: "Always allowed",
    Decision.DENY: "Denied",
    Decision.NEVER: "Denied from now on",
    Decision.EDIT: "Allowed with another input",
    Decision.CHOOSE: "Answered",
    Decision.CANCEL: "Denied, and the turn ended",
    Decision.LATER: "Set aside",
}


def how_it_closed(closed: Closed | None, session: Session | None) -> str:
    """Who closed a request, at which screen, and with what; or why the agent does not wait any more."""
    if session is None:
        return "The session is not in the list any more."
    if closed is None:
        return "It does not wait any more."
    if closed.decision is None:
        return f"Withdrawn: {clean_line(closed.by) or 'the agent does not wait for it any more'}."
    if closed.by == "policy":
        by = f"by rule {clean_line(closed.rule)}" if closed.rule else "by a rule"
    elif closed.who:
        by = f"by {clean_line(closed.by)} at {clean_line(closed.who)}"
    else:
        by = "by you, elsewhere" if closed.by == "user" else f"by {clean_line(closed.by)}"
    return f"{ANSWERED[closed.decision]} {by}."
