"""Fork a session at an earlier prompt, or at its end: a new session whose conversation is the same up to there. No file
is rewound."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.backends.common.environment import load_variables
from kasmon.errors import NotFoundError, RefusedError
from kasmon.host.journal.redaction import Redactor
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import ConversationFork, Launch, Mode
from kasmon.model.events import EntryImported, Event, SessionStarted, SettingsChanged, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.export import export_events
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.sessions.create import NewSession, as_given
from kasmon.supervisor.sessions.session_operations import create_with_free_name

if TYPE_CHECKING:
    from kasmon.config import Config

FORKING: Final = frozenset({"claude", "codex"})
"""The backends whose agents copy a conversation up to a prompt."""
LONGEST_STEM: Final = 60
"""How much of the session's name the new one begins with, in characters."""
LONGEST: Final = 200_000
"""How much of a transcript another agent gets, in characters: the last ones."""
PREFACE: Final = """\
This session continues an earlier one. Below is its transcript{extent}. The files of the folder
were not rewound: they may contain later changes.

{transcript}
The transcript ends here. My next prompt:

{prompt}"""


def copies_conversation(session: Session, *, whole: bool) -> bool:
    """Whether the agent of *session* itself copies its conversation; otherwise the new one gets the transcript.

    *whole*: all of it, else up to a prompt.
    """
    is_able = "forks" in session.abilities if whole else session.backend in FORKING
    return is_able and bool(session.resume_id) and session.sandbox is None and not session.via


async def fork(
    paths: Paths, config: "Config", session: Session, prompt: str, later: int, text: str
) -> tuple[SessionId, str]:
    """Start a session that continues *session* with *text* in the place of an earlier *prompt*; return id and name.

    Without a *prompt* it continues after the last turn.

    The new one has the same agent, folder and account, and works in the same files as they are now.

    Args:
        later: how many later prompts of the session have the same text.

    Raises:
        RefusedError: if it runs in a terminal, or on another machine; or if its last turn still runs, without *prompt*.
        NotFoundError: if it has no such prompt.
        KasmonError: as `create` raises.
    """
    if session.via or session.mode is not Mode.SDK:
        raise RefusedError(
            f"{session.label!r} cannot be forked: only structured sessions of this machine can.",
            hint="In a terminal, the agent's own keys do it.",
        )
    if not prompt and session.in_turn:
        raise RefusedError(f"the turn of {session.label!r} still runs.", hint="Wait for its end, or interrupt it.")
    launch = await run_in_thread(load_launch, paths, session.id)
    events = await run_in_thread(_read_before, paths, session.id, prompt, later)
    own = await run_in_thread(load_variables, paths, session.id)
    new, before = _build_request(launch, own), [each for each in events if isinstance(each, TurnStarted)]
    has_earlier = any(isinstance(each, EntryImported) for each in events) or (launch.generation == 1 and launch.resume)
    if not (before or has_earlier):
        new = msgspec.structs.replace(new, prompt=text)
    elif copies_conversation(session, whole=not prompt):
        ids = [each.resume_id for each in events if isinstance(each, SessionStarted | SettingsChanged)]
        conversation = next((each for each in reversed(ids) if each), session.resume_id or "")
        copied = ConversationFork(conversation=conversation, prompt=prompt, later=later)
        new = msgspec.structs.replace(new, prompt=text, fork=copied)
    else:
        transcript = "".join(export_events(events, in_terminal=False))[-LONGEST:]
        redactor = Redactor(await run_in_thread(secrets_of, paths, session.id))
        extent = " up to a prompt that I changed" if prompt else ""
        preface = PREFACE.format(extent=extent, transcript=redactor.line(transcript), prompt=text)
        new = msgspec.structs.replace(new, prompt=preface)
    stem = re.sub(r"-\d{1,6}\Z", "", session.name)[:LONGEST_STEM]
    return await create_with_free_name(paths, config, msgspec.structs.replace(new, name=stem))


def _read_before(paths: Paths, session: SessionId, prompt: str, later: int) -> list[Event]:
    """Return the events before the turn of *prompt*, or all without one; *later* turns have the same one. Blocks."""
    events = [*EventLog(paths.log(session)).events()]
    if not prompt:
        return events
    found = [number for number, event in enumerate(events) if isinstance(event, TurnStarted) and event.prompt == prompt]
    if len(found) <= later:
        raise NotFoundError(f"session {session!r} has no such prompt.", hint="Its text may have been cut or redacted.")
    return events[: found[-1 - later]]


def _build_request(launch: Launch, own: Mapping[str, str]) -> NewSession:
    """Return the request for a session without a name like that of *launch*, whose variables are *own*."""
    secret, public = as_given(own, launch.public_variables)
    return NewSession(
        name="",
        agent=launch.agent,
        mode=launch.mode,
        workdir=launch.workdir,
        worktree=False,
        environment=secret,
        public_environment=public,
        tags=launch.tags,
        account="" if "/" in launch.account else launch.account,
        sandbox=launch.sandbox or "",
        seed=launch.seed,
        speed=launch.speed,
    )
