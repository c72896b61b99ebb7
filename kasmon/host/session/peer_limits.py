"""Limits on messages from other agents, applied at the receiving host: recipient, length, rate, and timing.

A message of a peer is a prompt at a turn's end. The host counts those in its log, so that neither a sender that
counts differently nor a restarted host accepts more.
"""

from collections import deque
from typing import Final

import msgspec

from kasmon.errors import RefusedError, UsageError
from kasmon.host.journal.session_log import SessionLog
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import Prompt

LONGEST: Final = 8_000
"""How many characters a message may have, without the preface that names its sender."""
PREFACE: Final = 400
MOST: Final = 6
"""How many messages of peers an agent may get within `WINDOW_S`."""
WINDOW_S: Final = 60.0


def require_length(message: str, preface: int = 0) -> None:
    """Raise `UsageError` if *message*, with a preface of at most *preface* characters, is too long."""
    if len(message) > LONGEST + preface:
        raise UsageError(
            f"the message has {len(message)} characters.", hint=f"A message to a peer may have up to {LONGEST}."
        )


class PeerMessageLimiter:
    """The recent messages of peers to the agent of *session_log*."""

    def __init__(self, session_log: SessionLog) -> None:
        self._session_log = session_log
        self._came = deque(session_log.peers_at, MOST)

    def admit(self, prompt: Prompt, now: float) -> Prompt:
        """Return *prompt* if admitted; one of a peer waits for the turn's end, whatever it requests.

        Raises:
            UsageError: if it is a peer's and too long.
            RefusedError: if it is a peer's and the session would execute it, or too many arrived recently; nothing of
                it was stored then.
        """
        if prompt.by != "peer":
            return prompt
        session = self._session_log.session
        name = session.name or session.id
        if not is_agent(session, {session.agent.partition("@")[0]: session.program}):  # its profile is not known here
            raise RefusedError(f"{name!r} is no agent: a shell would execute the message.")
        require_length(prompt.text, PREFACE)
        if len(self._came) == MOST and self._came[0] > now - WINDOW_S:
            raise RefusedError(
                f"{name!r} received {MOST} peer messages within {WINDOW_S:g} s.", hint="Wait, or write it to the notes."
            )
        self._came.append(now)
        return msgspec.structs.replace(prompt, when="idle")
