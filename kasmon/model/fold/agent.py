"""A session whose agent starts, is lost from sight or found again, changes its settings, or ends."""

import msgspec

from kasmon.model.command import ReceiptState
from kasmon.model.event import LineFound, LineLost, SessionEnded, SessionStarted, SettingsChanged
from kasmon.model.fold.receipt import ON_THE_WAY, lost
from kasmon.model.fold.request import all_withdrawn
from kasmon.model.fold.sandbox import is_timed_out
from kasmon.model.session import Session, last_line
from kasmon.model.state import SessionState


def started(session: Session, event: SessionStarted) -> Session:
    """*session* as its agent begins: nothing of the one before waits or is known any more, but for queued prompts."""
    fresh = all_withdrawn(session, "the agent was started again", event.at)
    return msgspec.structs.replace(
        fresh,
        generation=event.generation,
        backend=event.backend or session.backend,
        mode=event.mode,
        workdir=event.workdir or session.workdir,
        pid=event.pid,
        pid_started=event.pid_started,
        pid_boot=event.pid_boot,
        resume_id=event.resume_id or session.resume_id,
        model=event.model or session.model,
        abilities=event.abilities,
        proof=event.proof,
        last_words="",
        last_line="" if session.end_why and session.last_line == last_line(session.end_why) else session.last_line,
        exit_code=None,
        signal=None,
        end_why="",
        stopped=False,
        timed_out=False,
        signals=(),
        in_turn=False,
        receipts=lost(fresh, frozenset(ON_THE_WAY) - {ReceiptState.QUEUED}, "its host was gone", event.at),
    )


def line_lost(session: Session, event: LineLost) -> Session:
    """*session* with why it is out of sight, where that is told of the line to its machine."""
    is_news = event.what == "remote line" and session.state is not SessionState.ENDED
    return msgspec.structs.replace(session, end_why=event.why) if is_news else session


def line_found(session: Session, event: LineFound) -> Session:
    """*session*, whose agent ran on out of sight, in the process that *event* names."""
    if event.pid is None or session.state is not SessionState.LOST:
        return session
    return msgspec.structs.replace(
        session, pid=event.pid, pid_started=event.pid_started, pid_boot=event.pid_boot, end_why=""
    )


def set_up(session: Session, event: SettingsChanged) -> Session:
    """*session* with the settings that *event* names; what it leaves out is as it was."""
    return msgspec.structs.replace(
        session,
        model=event.model or session.model,
        models=event.models or session.models,
        permission_mode=event.permission_mode or session.permission_mode,
        permission_modes=event.permission_modes or session.permission_modes,
        resume_id=event.resume_id or session.resume_id,
    )


def ended(session: Session, event: SessionEnded) -> Session:
    """*session* with how its agent ended; one that never began leaves queued prompts where they are."""
    gone = all_withdrawn(session, "the agent ended", event.at)
    losing = frozenset(ON_THE_WAY) - ({ReceiptState.QUEUED} if event.never_began else set())
    return msgspec.structs.replace(
        gone,
        exit_code=event.exit_code,
        signal=event.signal,
        end_why=event.why,
        last_words=event.last_words,
        stopped=event.why == "stopped",
        timed_out=is_timed_out(session),
        receipts=lost(gone, losing, "the agent ended", event.at),
        in_turn=False,
        last_line=last_line(event.why) if event.why and event.why != "stopped" else gone.last_line,
    )
