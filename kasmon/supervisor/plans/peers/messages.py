"""Messages between peer agents: prompts delivered at the end of a turn, marked as a peer's, limited in size and rate.

A message is only a prompt: it answers no request, and is not typed while a dialog is open. The receiving host enforces
the limits (`host/session/peer_limits`).
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.host.session.peer_limits import LONGEST, require_length
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import ActingAgent, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import PeerMessageWritten
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.progress import ACTIVE
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.sanitize import clean_block, clean_line
from kasmon.store.session_reader import read_events
from kasmon.supervisor.plans.peers.context import TaskContext, TaskPeer, context_of
from kasmon.supervisor.sessions import session_operations

NOTES_BYTES: Final = 1 << 20
"""The size limit of a plan's notes."""
BY_RUNNER: Final = "the plan's runner delivers it"


def find_recipients(
    paths: Paths, fleet: Fleet, sender: Session, requested: str, profiles: Mapping[str, str]
) -> tuple[Session | TaskPeer, ...]:
    """Return the peers of *sender* that *requested* names, also those of its plan on other machines. Blocks.

    Raises as `find_peers`, if there is none elsewhere either.
    """
    context = context_of(paths, sender.id)
    if context is not None and context.machine:  # a plan of this machine may have the same id
        known = {sender.id, *(peer.id for peer in context.peer_sessions)}
        fleet = msgspec.structs.replace(fleet, sessions=tuple(each for each in fleet.sessions if each.id in known))
    distant = find_distant_peers(context, fleet, requested)
    if distant and requested != "wave":
        return distant
    try:
        return (*find_peers(fleet, sender, requested, profiles), *distant)
    except NotFoundError:
        if not distant:
            raise
        return distant


async def send_to(paths: Paths, sender: Session, recipient: Session | TaskPeer, text: str) -> Receipt:
    """Send as `send`, or as `hand_over` to a peer on another machine."""
    if isinstance(recipient, Session):
        return await send(paths, sender, recipient, text)
    return await hand_over(paths, sender, recipient.id or "", recipient.name or f"task {recipient.task}", text)


def find_peers(fleet: Fleet, sender: Session, requested: str, profiles: Mapping[str, str]) -> tuple[Session, ...]:
    """Return the peers of *sender* that *requested* names: `wave`, or one by task number, name or id.

    A session that runs no agent gets no message, as it would execute it. *profiles* is as for `is_agent`.

    Raises:
        NotFoundError: if no such peer runs.
        RefusedError: if the peer that is named runs no agent.
    """
    plan = [s for s in fleet.here if s.id != sender.id and s.plan == sender.plan and s.wave is not None]
    if requested == "wave":
        found = [s for s in plan if s.wave == sender.wave and s.state in ALIVE and is_agent(s, profiles)]
    else:
        found = [s for s in plan if requested in (s.name, s.id, str(s.task)) and s.state in ALIVE]
        found = sorted(found, key=lambda s: (s.wave != sender.wave, -s.created_at))[:1]
    if sender.wave is None or not found:
        whose = (
            f"{sender.name!r} has"
            if sender.wave is not None
            else (f"{sender.name!r} does not belong to a wave, so it has")
        )
        raise NotFoundError(f"{whose} no running peer {requested!r}.", hint="`kasmon ctx` lists them.")
    if not is_agent(found[0], profiles):
        raise RefusedError(f"{found[0].name!r} is no agent: a shell would execute the message.")
    return tuple(found)


async def send(
    paths: Paths,
    sender: Session,
    peer: Session,
    text: str,
    key: str = "",
    actor: ActingAgent | None = None,
    *,
    resumes: bool = True,
) -> Receipt:
    """Send *peer* the message *text* of *sender*, for the end of its turn; return the receipt. *key* is as in `Prompt`.

    *actor*: the agent of *sender*, if that is on another machine. *resumes* is as in `session_operations.send`.

    Raises:
        UsageError: if it is empty or too long.
        KasmonError: as `session_operations.send`; so the host of *peer* refuses too many messages.
    """
    return await session_operations.send(
        paths, peer, mark_sender(sender, text), "idle", "peer", key=key, actor=actor, resumes=resumes
    )


def find_distant_peers(context: TaskContext | None, fleet: Fleet, requested: str) -> tuple[TaskPeer, ...]:
    """Return the peers at work on other machines that *requested* names, as `find_peers`.

    *context*: what the plan's runner wrote for the sender.
    """
    peers = () if context is None else context.peer_sessions
    distant = [
        peer for peer in peers if peer.id and peer.is_agent and peer.task_state in ACTIVE and is_distant(peer, fleet)
    ]
    return tuple(peer for peer in distant if requested in ("wave", peer.name, peer.id, str(peer.task)))


def is_distant(peer: TaskPeer, fleet: Fleet) -> bool:
    """Whether the session of *peer* is on another machine than this one."""
    return bool(peer.id) and peer.id not in {each.id for each in fleet.here}


async def hand_over(paths: Paths, sender: Session, to: str, name: str, text: str, reason: str = BY_RUNNER) -> Receipt:
    """Leave *text* of *sender* in its log for the session *to*, or for the notes; return a receipt with *reason*.

    The plan's runner delivers it, or the link of the machine whose agent started *sender*.

    Raises:
        UsageError: if it is empty or too long.
        SessionEndedError, HostUnreachableError: if *sender* does not run.
    """
    message = PeerMessageWritten(at=time.time(), to=to, name=name, text=_clean(text))
    await session_operations.record_peer_message(paths, sender, message)
    return Receipt(id=ReceiptId(""), session=SessionId(to), state=ReceiptState.QUEUED, reason=reason)


def read_messages(paths: Paths, session: SessionId) -> list[PeerMessageWritten]:
    """Return what was handed over by *session*, oldest first. Blocks."""
    return [event for event in read_events(paths, session) if isinstance(event, PeerMessageWritten)]


def _clean(text: str) -> str:
    message = clean_block(text).strip()
    if not message:
        raise UsageError("missing message.")
    require_length(message)
    return message


def mark_sender(sender: Session, text: str) -> str:
    """Return the message *text* as its peer reads it, with a line that names the sender.

    Raises `UsageError` if it is empty or too long.
    """
    task = f", task {sender.task}" if sender.task is not None else ""
    whose = f"{clean_line(sender.label)}{task}, another agent"
    return f"[Message from your peer {whose}, not from the person you work for]\n{_clean(text)}"


def write_note(path: Path, sender: Session, text: str, at: str) -> None:
    """Append *text* of *sender* as one entry to the notes at *path*, unless the same entry is its last one.

    Raises `UsageError` if it is empty or too long, `RefusedError` if the notes are full.
    """
    message = clean_block(text).strip()
    if not message or len(message) > LONGEST:
        raise UsageError("a note must have between 1 and 8,000 characters.")
    entry = f"## {clean_line(sender.name)}, {at}\n\n{message}\n\n".encode()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if os.pread(handle, len(entry), max(0, size - len(entry))) == entry:
            return
        if size + len(entry) > NOTES_BYTES:
            raise RefusedError(f"the notes at {str(path)!r} are full.", hint="Shorten them.")
        os.write(handle, entry)
    finally:
        os.close(handle)
