"""What an agent replays of a conversation that it goes on with: told as a proof, never as new facts.

An agent may still be replaying when it has answered `session/load` (gemini does): so it is waited for until it is
quiet, and what it says until the first prompt is history.
"""

import asyncio
from typing import Final

from kasmon.errors import LaunchError

QUIET_S: Final = 0.3
"""An agent that has replayed nothing for so long has replayed all."""
SEARCH_S: Final = 1.0
"""Likewise, while the prompt that it should remember has not come."""
LONG_ENOUGH: Final = 20
"""How many characters make a prompt telling enough to be found inside a longer message."""


class ReplayedHistory:
    """The replayed messages of one conversation."""

    def __init__(self, remembers: str) -> None:
        self.pieces = 0
        """How many messages, thoughts and tool calls were replayed, in whatever pieces they came."""
        self.holds_it = False
        """The prompt that is to be remembered is among them."""
        self.goes_on = 0
        """How many further messages of the user came after it."""
        self._remembers = remembers.strip()
        self._message = ""
        self._text = ""
        self._grew = asyncio.Event()

    def heard(self) -> None:
        """Something else than a message of the user was replayed."""
        self._text = ""
        self._more()

    def user_said(self, text: str, message: str) -> None:
        """A piece of a message of the user was replayed; *message* is its id, where the agent gives one."""
        is_further = bool(message) and message == self._message and bool(self._text)
        self._text = self._text + text if is_further else text
        self._message = message
        if self._is_it(self._text):
            self.holds_it, self.goes_on = True, 0
        elif self.holds_it and not is_further:
            self.goes_on += 1
        self._more()

    async def settled(self) -> None:
        """Return when nothing comes any more."""
        while True:
            self._grew.clear()
            try:
                async with asyncio.timeout(QUIET_S if self.holds_it or not self._remembers else SEARCH_S):
                    await self._grew.wait()
            except TimeoutError:
                return

    def proof(self, conversation: str) -> str:
        """How it is known that this is the conversation *conversation* of before; empty if it may be a changed one.

        Raises:
            LaunchError: if nothing was replayed where there was something: it is a new one then, whatever its id.
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
        said = text.strip()
        return bool(self._remembers) and (
            said == self._remembers or (len(self._remembers) >= LONG_ENOUGH and self._remembers in said)
        )

    def _more(self) -> None:
        self.pieces += 1
        self._grew.set()
