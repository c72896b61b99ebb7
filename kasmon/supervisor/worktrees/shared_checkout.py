"""Which other agents work in the same git checkout as a session: they would overwrite each other's files."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kasmon.model.agent_program import is_agent
from kasmon.model.session import Session


def find_repository_top(folder: str) -> str:
    """Return the top of the git checkout that *folder* is in, with links resolved; empty if in none. Runs no git."""
    path = Path(os.path.realpath(folder))
    return next((str(top) for top in (path, *path.parents) if os.path.lexists(top / ".git")), "")


def list_agents_in(folder: str, sessions: Iterable[Session], profiles: Mapping[str, str]) -> list[Session]:
    """Return the agents among *sessions* that run in the git checkout of *folder*, on this machine.

    *profiles* is as for `is_agent`.
    """
    if not (folder and (top := find_repository_top(folder))):
        return []
    return [
        session
        for session in sessions
        if session.exists
        and session.has_folder_here
        and is_agent(session, profiles)
        and find_repository_top(session.workdir) == top
    ]


def list_sharers(session: Session, others: Iterable[Session], profiles: Mapping[str, str]) -> list[Session]:
    """Return the agents among *others* that *session*, an agent, joined in their checkout.

    The tasks of one plan share a checkout as the plan says, and windows of one session belong together: these do not
    count. *profiles* is as for `is_agent`.
    """
    if not session.has_folder_here or not is_agent(session, profiles):
        return []
    return [
        other
        for other in list_agents_in(session.workdir, others, profiles)
        if (other.created_at, other.id) < (session.created_at, session.id)
        and (other.plan is None or other.plan != session.plan)
        and (session.actor is not None or session.parent not in (other.id, other.parent or ""))
    ]


def describe_sharers(sharers: Iterable[Session]) -> str:
    """Return one clause on *sharers*, at least one; without a full stop."""
    first, *more = [other.label for other in sharers]
    rest = f" and {len(more)} more" if more else ""
    return f"{first}{rest} {'work' if more else 'works'} in the same checkout"


def describe_agents_in(folder: str, sessions: Iterable[Session], profiles: Mapping[str, str]) -> tuple[str, ...]:
    """Return a clause for each agent that works in the checkout of *folder*, whose files are to change.

    *profiles* is as for `is_agent`.
    """
    return tuple(
        f"the agent {each.name!r} ({each.state.value}) works in {folder!r}, whose files change under it"
        for each in list_agents_in(folder, sessions, profiles)
    )
