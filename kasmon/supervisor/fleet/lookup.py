"""Which session is meant: an id, an exact name, or an unambiguous id prefix, in this order; never a name prefix.

An agent's own session is the one that its environment names.
"""

from collections.abc import Mapping
from typing import Final

from kasmon.errors import AmbiguousSessionError, SessionNotFoundError
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session

PREFIX_LENGTH: Final = 3
"""The shortest id prefix that counts, in characters."""
OWN_ID: Final = ("KASMON_SESSION", "KASMOS_SESSION")
"""The variables that name an agent's own session to it."""


def own_id(variables: Mapping[str, str]) -> str:
    """The session whose agent's environment this is; empty if it is none's."""
    return next((variables[name] for name in OWN_ID if variables.get(name)), "")


def find(fleet: Fleet, wanted: str) -> Session:
    """The session of *fleet* that goes by *wanted*.

    Raises:
        SessionNotFoundError: if there is none.
        AmbiguousSessionError: if several ids begin so.
    """
    for session in fleet.sessions:
        if session.id == wanted:
            return session
    named = [session for session in fleet.sessions if session.name == wanted]
    prefixed = [session for session in fleet.sessions if session.id.startswith(wanted)]
    candidates = named or (prefixed if len(wanted) >= PREFIX_LENGTH else [])
    if not candidates:
        from difflib import get_close_matches  # only for who mistyped

        near = get_close_matches(wanted, [session.name for session in fleet.sessions], n=1)
        raise SessionNotFoundError(wanted, *near)
    if len(candidates) > 1:
        raise AmbiguousSessionError(wanted, sorted(session.id for session in candidates))
    return candidates[0]
