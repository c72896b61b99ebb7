"""The scopes of a rule: which ones a session has, and how each is named. Pure."""

from collections.abc import Sequence

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.sanitize import visible


class ScopeReach(msgspec.Struct, frozen=True):
    """One scope, and whose requests it covers."""

    scope: Scope
    words: str
    """The session, the plan or the folder, in full."""


THIS_SESSION = ScopeReach("session", "this session")


def reaches(session: Session | None, project: str) -> tuple[ScopeReach, ...]:
    """Return the scopes of a rule for a request of *session*, the narrowest first; *project* is its folder's project.

    None for a session in a terminal: there the agent's own menu defines what "always" means.
    """
    if session is not None and session.mode is Mode.TMUX:
        return ()
    plan = session.plan if session is not None else None
    return (
        THIS_SESSION,
        *([ScopeReach("plan", f"plan {visible(plan)}")] if plan else []),
        *([ScopeReach("project", f"project {visible(project)}")] if project else []),
    )


def following(scope: Scope, among: Sequence[ScopeReach]) -> Scope:
    """Return the scope after *scope*; the first after the last."""
    scopes = [reach.scope for reach in among]
    return scopes[(scopes.index(scope) + 1) % len(scopes)] if scope in scopes else "session"
