"""What a person allows: to resume sessions once their usage limit ends, each with a prompt that was shown."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence

from kasmon.config.schema import Config
from kasmon.errors import RefusedError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import spawn_prompter
from kasmon.model.events import MessageWritten, ToolStarted, TurnStarted
from kasmon.model.limits.resume import (
    CONTINUE,
    ResumeAllowed,
    ResumeCancelled,
    ResumePolicy,
    Resumption,
    is_wanted,
    waits_for_limit,
)
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.sanitize import HIDDEN
from kasmon.store.resume_log import ResumeLog, read_resumptions
from kasmon.store.session_reader import read_events


def cut_prompt(paths: Paths, session: Session) -> str:
    """Return the prompt that resumes *session*: the one that its limit cut off before any work, else "continue".

    A prompt of which the log does not hold every character is not repeated, nor is one that was typed in a terminal.
    """
    prompt = ""
    try:
        for event in read_events(paths, session.id):
            if isinstance(event, TurnStarted) and event.by != "agent":
                prompt = event.prompt
            elif isinstance(event, TurnStarted | ToolStarted | MessageWritten):
                prompt = ""
    except OSError:
        return CONTINUE
    return CONTINUE if not prompt.strip() or HIDDEN in prompt else prompt


def next_prompt(paths: Paths, session: Session, resumption: Resumption) -> str:
    """Return what resumes *session* now: the prompt that was shown or sent before; "continue" once it worked on that.

    A try that failed sends the same prompt again.
    """
    if not resumption.prompt:
        return cut_prompt(paths, session)
    if not resumption.tries or resumption.failed:
        return resumption.prompt
    has_begun = has_worked = False
    with contextlib.suppress(OSError):
        for event in read_events(paths, session.id):
            if isinstance(event, TurnStarted) and event.prompt.strip() == resumption.prompt.strip():
                has_begun, has_worked = True, False
            elif isinstance(event, ToolStarted | MessageWritten):
                has_worked = has_begun
    return CONTINUE if has_worked else resumption.prompt


def allow(paths: Paths, session: Session, prompt: str) -> None:
    """Record that *session* is resumed with *prompt* once its limit ends.

    Raises:
        RefusedError: if it does not wait for a limit, or its agent continues by itself; or it is of another machine.
        UnavailableError: if it cannot be recorded.
    """
    _must_be_here(session)
    if session.state is not SessionState.LIMITED:
        raise RefusedError(f"session {session.label!r} does not wait for a usage limit: it is {session.state}.")
    if not waits_for_limit(session):
        raise RefusedError(f"session {session.label!r} continues by itself when its limit ends.")
    ResumeLog(paths).add(ResumeAllowed(at=time.time(), session=session.id, prompt=prompt))


def cancel(paths: Paths, session: Session) -> None:
    """Record that *session* is not resumed by kasmon. Raises `RefusedError` if it is of another machine."""
    _must_be_here(session)
    ResumeLog(paths).add(ResumeCancelled(at=time.time(), session=session.id))


def _must_be_here(session: Session) -> None:
    if session.via:
        raise RefusedError(
            f"session {session.label!r} is resumed by its machine {session.via!r}.",
            hint=f"Run `kasmon limits` for {f'{session.via}:{session.name}'!r}.",
        )


def has_wanted(resumptions: Mapping[SessionId, Resumption], sessions: Iterable[Session], policy: ResumePolicy) -> bool:
    """Whether one of *sessions* waits for a limit and is resumed when it ends."""
    return any(
        waits_for_limit(session) and is_wanted(resumptions.get(session.id, Resumption()), session, policy)
        for session in sessions
    )


def is_resumer_needed(paths: Paths, config: Config, sessions: Sequence[Session]) -> bool:
    return has_wanted(read_resumptions(paths), sessions, ResumePolicy(mode=config.limits.resume))


def start_resumer(paths: Paths, config: Config, sessions: Sequence[Session]) -> None:
    """Start the process that resumes *sessions*, if that is needed and none runs. Raises `OSError` if it cannot."""
    if is_resumer_needed(paths, config, sessions) and lock_holder(paths.resumer_lock) is None:
        spawn_prompter(paths, "limits")
