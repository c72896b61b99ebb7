"""Find a session by id, exact name, or unambiguous id prefix, in this order; never by name prefix.

Names are unique on each machine only. Of several sessions with a name, that of this machine is meant; `MACHINE:NAME` is
one of a registered machine. An agent's own session is the one that its environment names.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kasmon.errors import AmbiguousSessionError, OtherMachineError, SessionNotFoundError, UsageError
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
    machine, _, own = requested.partition(":")
    matches = [each for each in fleet.sessions if each.via and each.via == machine and own in (each.name, each.id)]
    named = [session for session in named if not session.via] or named or matches
    prefixed = [session for session in fleet.sessions if session.id.startswith(requested)]
    candidates = named or (prefixed if len(requested) >= PREFIX_LENGTH else [])
    if not candidates:
        from difflib import get_close_matches  # only imported after a typo

        near = get_close_matches(requested, [session.name for session in fleet.sessions], n=1)
        raise SessionNotFoundError(requested, *near)
    if len(candidates) > 1:
        raise AmbiguousSessionError(requested, sorted(session.id for session in candidates))
    return candidates[0]


def find_here(fleet: Fleet, requested: str) -> Session:
    """Return the session as `find` does, for what needs its files or processes. Raises as `find` and `check_here`."""
    session = find(fleet, requested)
    check_here(session)
    return session


def check_named_alone(session: Session, names: Collection[str]) -> None:
    """Raise `UsageError` if *session*, one of *names*, is of another machine, where the other names mean others."""
    if session.via and len(names) > 1:
        raise UsageError(
            f"session {session.label!r} is on machine {session.via!r}: sessions of other machines are named one at a "
            "time.",
            hint=f"Run the command for {f'{session.via}:{session.name}'!r} alone.",
        )


def check_here(session: Session) -> None:
    """Raise `OtherMachineError` unless the files and processes of *session* are on this machine."""
    if session.via:
        raise OtherMachineError(session.id, session.name, session.via)
