"""The prompts that codex was given, until it says itself what becomes of them. Pure.

Codex begins a turn for a prompt, or takes it into the turn that runs; both times it says the prompt back as an item.
"""

from collections import deque
from typing import Final

from kasmon.model.commands import Prompt

KEPT: Final = 100
"""How many prompts are remembered that codex never mentioned again."""
BEGINNING: Final = 1000
"""How much of a prompt is told again, in characters."""


class PendingPrompts:
    """What was said to the main thread."""

    def __init__(self) -> None:
        self._to_begin: deque[Prompt] = deque(maxlen=KEPT)
        self._to_take_in: deque[Prompt] = deque(maxlen=KEPT)
        self._own: Prompt | None = None
        """The prompt of the turn that runs, until codex has said it back."""

    def expect(self, prompt: Prompt) -> None:
        """The next turn is that of *prompt*."""
        self._to_begin.append(prompt)

    def steer(self, prompt: Prompt) -> None:
        """The running turn is to take *prompt* in."""
        self._to_take_in.append(prompt)

    def forget(self, prompt: Prompt) -> None:
        """Codex does not take *prompt* after all."""
        for waiting in (self._to_take_in, self._to_begin):
            if prompt in waiting:
                waiting.remove(prompt)
                return

    def begun(self) -> Prompt | None:
        """A turn begins: the prompt that it is of; None where codex began it by itself."""
        self._own = self._to_begin.popleft() if self._to_begin else None
        return self._own

    def said_back(self, words: str) -> Prompt | None:
        """Codex goes on from *words* of a person: the prompt that it has taken into the running turn by that.

        None for the turn's own one, and for what nobody here has said.
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

    def dropped(self) -> tuple[str, ...]:
        """The running turn was interrupted: how the prompts begin that it has not taken in; codex forgets them."""
        gone = tuple(prompt.text.strip()[:BEGINNING] for prompt in self._to_take_in)
        self._to_take_in.clear()
        return gone


def _is_same(prompt: Prompt, words: str) -> bool:
    said = prompt.text.encode("utf-8", "replace").decode()  # half a surrogate pair is not said as it is
    return said.strip() == words.strip()
