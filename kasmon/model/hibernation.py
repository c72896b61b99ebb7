"""Whether a session may be hibernated, by what its log shows; and which to hibernate first. Pure.

A hibernated session's agent was ended while nothing waited for it, and its next use resumes the conversation. The
log has `HibernationBegun`, then the end of the agent. If its host dies between the two, the session is hibernated as
soon as its agent has ended.
"""

from collections.abc import Iterable, Mapping

from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState


def find_obstacle(session: Session) -> str:
    """Return why the agent of *session* may not be ended now; empty if its log shows no reason."""
    if session.adopted:
        return "it runs in your own tmux"
    if session.freed_bytes is not None:
        return "it is being hibernated already"
    if session.requests:
        return "it has an open request"
    if session.queue:
        return f"{session.queue} {'prompt is' if session.queue == 1 else 'prompts are'} queued"
    if session.in_turn or session.awaits_turn or session.state is SessionState.WORKING:
        return "its turn has not ended"
    if session.state is not SessionState.IDLE:
        return f"it is {session.state}" + (f": {session.unsure_why}" if session.unsure_why else "")
    return f"it reported that it waits: {session.waits}" if session.waits else ""


def propose(sessions: Iterable[Session]) -> tuple[Session, ...]:
    """Return those of *sessions* that are worth an attempt to hibernate, idle for the longest time first."""
    own = [each for each in sessions if not (each.sandbox or each.plan or each.via or each.mode is Mode.INTERPRETER)]
    idle = [each for each in own if each.resume_id]
    return tuple(sorted((each for each in idle if not find_obstacle(each)), key=lambda each: each.since))


def propose_for_budget(
    sessions: Iterable[Session], memory: Mapping[SessionId, int], budget_bytes: int
) -> tuple[Session, ...]:
    """Return those of *sessions* to hibernate so that all together use at most *budget_bytes*; none if that is 0.

    Args:
        memory: the memory of each session that runs here, in bytes.
    """
    over = sum(memory.values()) - budget_bytes if budget_bytes else 0
    proposed: list[Session] = []
    for session in propose(sessions):
        if over <= 0:
            break
        if held := memory.get(session.id):
            proposed.append(session)
            over -= held
    return tuple(proposed)
