"""How far a standing rule would reach: the scopes that a session has, and what each is called. Pure."""

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
    """The session, the plan or the folder, whole."""


THIS_SESSION = ScopeReach("session", "this session")


def reaches(session: Session | None, project: str) -> tuple[ScopeReach, ...]:
    """What a rule made at a request of *session* may cover, the narrowest first; *project* is its folder's project.

    Nothing for a session in a terminal: what "always" means there, the agent's own menu says.
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
    """The scope after *scope*, round and round."""
    scopes = [reach.scope for reach in among]
    return scopes[(scopes.index(scope) + 1) % len(scopes)] if scope in scopes else "session"
