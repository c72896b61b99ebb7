"""Messages between peer agents: prompts delivered at the end of a turn, marked as a peer's, limited in size and rate.

A message is only a prompt: it answers no request, and is not typed while a dialog is open. The receiving host enforces
the limits (`host/session/peer_limits`).
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.host.session.peer_limits import LONGEST
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import Receipt
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.sanitize import clean_block, clean_line
from kasmon.supervisor.sessions import session_operations

NOTES_BYTES: Final = 1 << 20
"""The size limit of a plan's notes."""


def find_peers(fleet: Fleet, sender: Session, requested: str, profiles: Mapping[str, str]) -> tuple[Session, ...]:
    """Return the peers of *sender* that *requested* names: `wave`, or one by task number, name or id.

    A session that runs no agent gets no message, as it would execute it. *profiles* is as for `is_agent`.

    Raises:
        NotFoundError: if no such peer runs.
        RefusedError: if the peer that is named runs no agent.
    """
    plan = [s for s in fleet.sessions if s.plan == sender.plan and s.wave is not None and s.id != sender.id]
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


async def send(places: Paths, sender: Session, peer: Session, text: str) -> Receipt:
    """Send *peer* the message *text* of *sender*, for the end of its turn; return the receipt.

    Raises:
        UsageError: if it is empty or too long.
        RefusedError: if the host of *peer* reports that it got too many messages lately.
        KasmonError: as `session_operations.send` raises.
    """
    message = clean_block(text).strip()
    if not message:
        raise UsageError("missing message.")
    if len(message) > LONGEST:
        raise UsageError(
            f"the message has {len(message)} characters.", hint=(f"A message to a peer may have up to {LONGEST}.")
        )
    return await session_operations.send(places, peer, mark_sender(sender, message), "idle", "peer")


def mark_sender(sender: Session, message: str) -> str:
    """Return the message as its peer reads it, with a line that names the sender."""
    task = f", task {sender.task}" if sender.task is not None else ""
    whose = f"{clean_line(sender.name)}{task}, another agent"
    return f"[Message from your peer {whose}, not from the person you work for]\n{message}"


def write_note(path: Path, sender: Session, text: str, at: str) -> None:
    """Append *text* of *sender* as one entry to the notes at *path*.

    Raises:
        UsageError: if it is empty or too long.
        RefusedError: if the notes are full.
    """
    message = clean_block(text).strip()
    if not message or len(message) > LONGEST:
        raise UsageError("a note must have between 1 and 8,000 characters.")
    entry = f"## {clean_line(sender.name)}, {at}\n\n{message}\n\n".encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_size + len(entry) > NOTES_BYTES:
            raise RefusedError(f"the notes at {str(path)!r} are full.", hint="Shorten them.")
        os.write(handle, entry)
    finally:
        os.close(handle)
