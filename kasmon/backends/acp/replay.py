"""The history that an agent replays when it resumes a conversation: used as proof, never logged as new events.

An agent may still be replaying when it has answered `session/load` (gemini does). So kasmon waits until it is quiet;
what it sends before the first prompt is history.
"""

import asyncio
from typing import Final

from kasmon.asyncio_tasks import wait_within
from kasmon.errors import LaunchError

QUIET_S: Final = 0.3
"""Silence after which the replay counts as complete, in seconds."""
SEARCH_S: Final = 1.0
"""The same limit while the last prompt has not been replayed yet."""
LONG_ENOUGH: Final = 20
"""Minimum length of a prompt, in characters, to be searched for inside a longer message."""


class ReplayedHistory:
    """The replayed messages of one conversation."""

    def __init__(self, remembers: str) -> None:
        self.pieces = 0
        """How many messages, thoughts and tool calls were replayed, counted by pieces."""
        self.holds_it = False
        """The last prompt is among them."""
        self.goes_on = 0
        """How many messages of the user followed it."""
        self._remembers = remembers.strip()
        self._message = ""
        self._text = ""
        self._grew = asyncio.Event()

    def record_item(self) -> None:
        """Record a replayed item that is not a message of the user."""
        self._text = ""
        self._count_piece()

    def record_user_text(self, text: str, message: str) -> None:
        """Record a replayed piece of a user message; *message* is its id, if the agent sends one."""
        is_further = bool(message) and message == self._message and bool(self._text)
        self._text = self._text + text if is_further else text
        self._message = message
        if self._is_it(self._text):
            self.holds_it, self.goes_on = True, 0
        elif self.holds_it and not is_further:
            self.goes_on += 1
        self._count_piece()

    async def wait_for_end(self) -> None:
        while True:
            self._grew.clear()
            limit_s = QUIET_S if self.holds_it or not self._remembers else SEARCH_S
            if not await wait_within(limit_s, self._grew):
                return

    def proof(self, conversation: str) -> str:
        """Return how *conversation* was verified; empty if its history may have changed.

        Raises:
            LaunchError: if a conversation with prompts replayed nothing: despite its id, it is a new one.
        """
        if not self.pieces and self._remembers:
            raise LaunchError(
                f"the agent opened the conversation {conversation!r}, but its history is empty.",
                hint="`kasmon new` starts a new session.",
            )
        if self.holds_it:
            return "same id, and its own history contains our last prompt"
        if not self.pieces:
            return "same id, and as little content as before"
        if not self._remembers:
            return f"same id, and its own history has {self.pieces} parts"
        return ""

    def _is_it(self, text: str) -> bool:
        prompt = text.strip()
        return bool(self._remembers) and (
            prompt == self._remembers or (len(self._remembers) >= LONG_ENOUGH and self._remembers in prompt)
        )

    def _count_piece(self) -> None:
        self.pieces += 1
        self._grew.set()
