"""The prompts sent to codex, until codex reports that it uses them. Pure.

Codex begins a turn for a prompt, or adds it to the running turn; both times it echoes the prompt as an item.
"""

from collections import deque
from typing import Final

from kasmon.model.commands import Prompt

KEPT: Final = 100
"""How many unconfirmed prompts are remembered."""
BEGINNING: Final = 1000
"""How much of a dropped prompt is reported, in characters."""


class PendingPrompts:
    """The prompts sent to the main thread."""

    def __init__(self) -> None:
        self._to_begin: deque[Prompt] = deque(maxlen=KEPT)
        self._to_take_in: deque[Prompt] = deque(maxlen=KEPT)
        self._own: Prompt | None = None
        """The prompt of the running turn, until codex has echoed it."""

    def expect(self, prompt: Prompt) -> None:
        """Expect the next turn to be that of *prompt*."""
        self._to_begin.append(prompt)

    def steer(self, prompt: Prompt) -> None:
        """Expect the running turn to include *prompt*."""
        self._to_take_in.append(prompt)

    def forget(self, prompt: Prompt) -> None:
        for waiting in (self._to_take_in, self._to_begin):
            if prompt in waiting:
                waiting.remove(prompt)
                return

    def begin_turn(self) -> Prompt | None:
        """Return the prompt of the turn that begins; None if codex began it by itself."""
        self._own = self._to_begin.popleft() if self._to_begin else None
        return self._own

    def take_echoed(self, words: str) -> Prompt | None:
        """Return the prompt that the running turn now includes, from *words* that codex echoed.

        None for the turn's own prompt, and for text that kasmon did not send.
        """
        if self._own is not None and _is_same(self._own, words):
            self._own = None
            return None
        for waiting in (self._to_take_in, self._to_begin):
            taken = next((prompt for prompt in waiting if _is_same(prompt, words)), None)
            if taken is not None:
                waiting.remove(taken)
                return taken
        return None

    def take_dropped(self) -> tuple[str, ...]:
        """Return the beginnings of the prompts that an interrupted turn did not include; codex forgets them."""
        gone = tuple(prompt.text.strip()[:BEGINNING] for prompt in self._to_take_in)
        self._to_take_in.clear()
        return gone


def _is_same(prompt: Prompt, words: str) -> bool:
    said = prompt.text.encode("utf-8", "replace").decode()  # codex echoes a replacement for half a surrogate pair
    return said.strip() == words.strip()
