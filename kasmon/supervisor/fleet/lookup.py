"""Find a session by id, exact name, or unambiguous id prefix, in this order; never by name prefix.

An agent's own session is the one that its environment names.
"""

from collections.abc import Mapping
from typing import Final

from kasmon.errors import AmbiguousSessionError, SessionNotFoundError
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session

PREFIX_LENGTH: Final = 3
"""The shortest accepted id prefix, in characters."""
OWN_ID: Final = ("KASMON_SESSION", "KASMOS_SESSION")
"""The environment variables that contain the id of an agent's own session."""


def own_id(variables: Mapping[str, str]) -> str:
    """Return the id of the session whose agent has this environment; empty if there is none."""
    return next((variables[name] for name in OWN_ID if variables.get(name)), "")


def find(fleet: Fleet, requested: str) -> Session:
    """Return the session of *fleet* that *requested* identifies.

    Raises:
        SessionNotFoundError: if there is none.
        AmbiguousSessionError: if several names or id prefixes match.
    """
    for session in fleet.sessions:
        if session.id == requested:
            return session
    named = [session for session in fleet.sessions if session.name == requested]
    prefixed = [session for session in fleet.sessions if session.id.startswith(requested)]
    candidates = named or (prefixed if len(requested) >= PREFIX_LENGTH else [])
    if not candidates:
        from difflib import get_close_matches  # only imported after a typo

        near = get_close_matches(requested, [session.name for session in fleet.sessions], n=1)
        raise SessionNotFoundError(requested, *near)
    if len(candidates) > 1:
        raise AmbiguousSessionError(requested, sorted(session.id for session in candidates))
    return candidates[0]
