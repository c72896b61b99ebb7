"""Prompts for an agent in a terminal: typed once it reads, and held back where nobody can tell that it is idle."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kasmon.backends.tmux import TmuxAgent
from kasmon.errors import KasmonError, SessionEndedError
from kasmon.host.pen import Pen
from kasmon.host.prompts import Prompts
from kasmon.model.command import Prompt, Receipt, ReceiptId, ReceiptState, Wish
from kasmon.model.event import ReceiptMoved, SignalSeen, TurnEnded, TurnStarted
from kasmon.model.evidence import claims
from kasmon.model.state import SessionState

SETTLED_S: Final = 0.3
"""An agent reads once it has printed something, and then nothing for so long;"""
SILENT_S: Final = 3.0
"""or if it has not printed anything for so long;"""
RESTLESS_S: Final = 10.0
"""or if it still prints after so long."""
LOOK_S: Final = 0.05
BEGINS_S: Final = 8.0
"""How long a prompt is kept from its sender's eyes while the agent begins; after that it is said to be queued."""
UNKNOWN: Final = "nobody can tell when this program is idle; send it with --when now"
TURNS: Final = {
    SessionState.WORKING: True,
    SessionState.ASKING: True,
    SessionState.LIMITED: True,
    SessionState.IDLE: False,
    SessionState.ENDED: False,
}
"""Whether an agent that is judged to be in this state is in a turn; in the others nobody knows, and nothing changes."""


WORDLESS: Final = frozenset({"output", "fallback", "launch"})
"""Sources from which nobody can tell when an agent is idle."""


class TypedPrompts(Prompts):
    """The prompts of one agent in a terminal. Until it is ready all wait; then those that were to go at once go."""

    def __init__(self, pen: Pen, give: Callable[[Wish], Awaitable[None]]) -> None:
        super().__init__(pen, give)
        self._at_ready: list[ReceiptId] = []
        self._begun_to_read = asyncio.Event()
        self._has_word = False
        self._in_turn = False
        self._is_over = False

    async def take(self, prompt: Prompt) -> Receipt:
        """Like `Prompts.take`; where the agent only begins, a prompt that need not wait waits for that a while.

        Raises:
            SessionEndedError: if the agent ends before it could be typed to.
        """
        if prompt.when != "idle" and prompt.text.strip() and not self.is_ready:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEGINS_S):
                    await self._begun_to_read.wait()
        if self._is_over:
            raise SessionEndedError(self._pen.session.id)
        receipt = await super().take(prompt)
        if receipt.state is not ReceiptState.QUEUED:
            return receipt
        if not self.is_ready:
            if prompt.when != "idle":
                self._at_ready.append(receipt.id)
            return receipt
        return receipt if self._has_word else self._say_why(receipt)

    def first(self, prompt: Prompt) -> None:
        """Have *prompt* typed as soon as the agent is ready, if it is idle then or nobody can tell."""
        self._at_ready.append(self.queue(prompt).id)

    async def settle(self, agent: TmuxAgent) -> None:
        """Wait until *agent*, which has just become its program, can be typed to; then begin."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while not agent.has_word and (silent_s := loop.time() - began_at) < RESTLESS_S:
            if agent.printed_at == -math.inf:
                if silent_s >= SILENT_S:
                    break
            elif loop.time() - agent.printed_at >= SETTLED_S:
                break
            await asyncio.sleep(LOOK_S)
        await self.begin(agent.has_word)

    async def begin(self, has_word: bool) -> None:
        """The agent can be typed to. *has_word* says whether it reports its own state."""
        self.is_ready, self._has_word = True, has_word
        for receipt in self._in(ReceiptState.QUEUED):
            if has_word:
                break  # the queue sees when it is idle
            if receipt.id not in self._at_ready:
                self._say_why(receipt)
                continue
            async with self._handing:
                try:
                    prompt = self._prompt(receipt.id)
                    await self._hand_over(self._stepped(receipt, ReceiptState.TYPED), prompt, is_new=False)
                except KasmonError:
                    continue  # its receipt says so
        self._begun_to_read.set()
        self._changed.set()

    def end(self) -> None:
        """The agent has ended, or was lost: nothing is typed any more."""
        self.is_ready, self._is_over = False, True
        self._begun_to_read.set()

    def reported(self, signal: SignalSeen) -> None:
        """Take *signal*, which was noted, for the beginning or the end of a turn, if it is one."""
        was_in_turn = self._in_turn
        session = self._pen.session
        self._has_word = any(claims(known) for known in session.signals if known.source not in WORDLESS)
        if signal.source == "program" or self._has_word:
            self._in_turn = TURNS.get(session.state, self._in_turn and self._has_word)
        if self._in_turn and not was_in_turn:
            self.heard(TurnStarted(at=signal.at))
        elif was_in_turn and not self._in_turn:
            is_error = signal.source == "program" and signal.value == "error"
            self.heard(TurnEnded(at=signal.at, reason="error" if is_error else "done"))
        else:
            self.heard(signal)

    def _say_why(self, receipt: Receipt) -> Receipt:
        """*receipt*, which waits, with the reason why that may take long."""
        told = msgspec.structs.replace(receipt, reason=UNKNOWN, at=time.time())
        self._pen.note(ReceiptMoved(at=told.at, receipt=told))
        return told
