"""Prompts on their way to the agent: which may go, which waits, and the receipt of each.

A receipt's steps in the log: `queued` (waits for the turn to end), `typed` (being handed over), `submitted` (the agent
took it), `started` and `finished` (its turn). A queue survives its host: what was `queued` is handed over by the next
one. What was `typed` is not, since nobody knows whether the agent has it: nothing is ever prompted twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kasmon.clean import clean_line
from kasmon.errors import KasmonError, NotFoundError, RefusedError, SessionBusyError, TimedOutError, UsageError
from kasmon.host.mail import Mail
from kasmon.host.pen import Pen
from kasmon.model.command import Interrupt, Mode, Prompt, Receipt, ReceiptId, ReceiptState, Requeue, Wish
from kasmon.model.event import Event, QueueOrdered, ReceiptMoved, TurnEnded, TurnStarted
from kasmon.model.state import SessionState

QUEUE: Final = 100
"""How many prompts may wait."""
BEGIN_S: Final = 10.0
"""How long a prompt that an idle agent took may take to begin its turn, before the next may go."""
SHOWN: Final = 200
TAKEN_IN = "taken in with another turn"
DROPPED = "the turn ended before the agent had taken it in"
TAKEN_BACK = "taken back"
NOT_STEERED = "this agent takes nothing in while a turn runs: it waits for the turn's end"
ON_THE_WAY = (ReceiptState.TYPED, ReceiptState.SUBMITTED)
ASLEEP = (SessionState.STANDBY, SessionState.PAUSED)
"""A prompt wakes it."""

R = ReceiptState


class Prompts:
    """The prompts of one agent; `give` carries a wish to it."""

    def __init__(self, pen: Pen, give: Callable[[Wish], Awaitable[None]], *, steers: bool = True) -> None:
        """*steers*: a prompt can go to the agent while a turn runs; else it waits for the turn's end."""
        self._steers = steers
        self.is_ready = False
        """The agent runs and has said so; until then every prompt waits."""
        self._pen = pen
        self._mail = Mail(pen.book)
        self._give = give
        self._handing = asyncio.Lock()
        self._handed: list[ReceiptId] = []
        """What the agent was given and began no turn with yet, in the order in which it takes them."""
        self._expecting: asyncio.TimerHandle | None = None
        """Runs while an idle agent has a prompt whose turn has not begun."""
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def state(self) -> SessionState:
        """What it does, as far as prompts go: an agent that sleeps is woken by one, so it is idle."""
        if not self.is_ready:
            return SessionState.STARTING
        state = self._pen.session.state
        return SessionState.IDLE if state in ASLEEP else state

    async def take(self, prompt: Prompt) -> Receipt:
        """Carry *prompt* to the agent as its `when` says; the receipt tells how far it came.

        Raises:
            UsageError: if it is empty, or a peer's and too long.
            SessionBusyError: if the agent is busy and *prompt* is not to disturb it.
            RefusedError: if too many wait already, too many came of peers of late, or the agent does not take it.
            TimedOutError: if the agent did not react; it is not known then whether it has the prompt.
        """
        if not prompt.text.strip():
            raise UsageError("a prompt needs text.")
        prompt = self._mail.admit(prompt, self._pen.session.name or self._pen.session.id, time.time())
        if prompt.when == "refuse" and not self._is_free():
            state = self.state if self.state is not SessionState.IDLE else SessionState.WORKING
            raise SessionBusyError(self._pen.session.name or self._pen.session.id, state)
        if not self.is_ready or (prompt.when == "idle" and not self._is_free()):
            return self.queue(prompt)
        if prompt.when == "now" and not self._steers and not self._is_open():
            return self.queue(prompt, NOT_STEERED)
        async with self._handing:
            if prompt.when == "interrupt" and self._state is not SessionState.IDLE:
                await self._interrupt()
            try:
                return await self._hand_over(prompt)
            finally:
                self._changed.set()

    def queue(self, prompt: Prompt, why: str = "") -> Receipt:
        """Keep *prompt* until the agent is idle; *why* tells its sender the reason, where it is no plain one.

        Raises:
            RefusedError: if too many wait already.
        """
        session = self._pen.session
        if session.queue >= QUEUE:
            raise RefusedError(f"{QUEUE} prompts wait already for session {session.id!r}.")
        receipt = self._receipt(session.next_receipt(), prompt, R.QUEUED)
        receipt = self._move(msgspec.structs.replace(receipt, reason=why), prompt)
        self._changed.set()
        return receipt

    def requeue(self, wish: Requeue) -> Receipt:
        """Change, move or take back a prompt that waits; its receipt after that.

        Raises:
            NotFoundError: if there is no such receipt.
            RefusedError: if its prompt waits no more; nothing changed then.
            UsageError: if it would be empty, or some of what is hidden in it was changed.
        """
        receipt = next((known for known in self._pen.session.receipts if known.id == wish.receipt), None)
        if receipt is None:
            raise NotFoundError(f"no prompt is called {wish.receipt!r}.", hint="`kasmon show` lists the receipts.")
        if receipt.state is not R.QUEUED:
            raise RefusedError(f"the prompt {receipt.id!r} is {receipt.state}: it waits no more.")
        if wish.text is not None and not wish.text.strip():
            raise UsageError("a prompt needs text.", hint="Take it back instead.")
        if wish.drop:
            return self._step(receipt, R.REFUSED, TAKEN_BACK)
        if wish.place is not None:
            order = [waiting.id for waiting in self._in(R.QUEUED) if waiting.id != receipt.id]
            order.insert(max(0, wish.place), receipt.id)
            self._pen.note(QueueOrdered(at=time.time(), receipts=tuple(order)))
        if wish.text is not None:
            text = self._pen.book.restored(receipt.id, wish.text)
            prompt = msgspec.structs.replace(self._prompt(receipt.id), text=text)
            receipt = self._move(msgspec.structs.replace(receipt, text=_shown(text), at=time.time()), prompt)
        return receipt

    def heard(self, event: Event) -> None:
        """Move receipts by what the agent did, after *event* was noted."""
        if isinstance(event, TurnStarted):
            self._begun()
            if event.by != "agent" and (begins := self._beginning(event.prompt)) is not None:
                self._passed_over(begins.id)
                self._step(begins, R.STARTED)
        elif isinstance(event, TurnEnded):
            self._begun()
            for receipt in self._in(R.STARTED):
                self._step(receipt, R.FINISHED, "" if event.reason == "done" else event.error or event.reason)
            for text in event.dropped:
                if same := [receipt for receipt in self._in(*ON_THE_WAY) if receipt.text == _shown(text)]:
                    self._step(same[0], R.LOST, DROPPED)
        self._changed.set()

    def _passed_over(self, begins: ReceiptId) -> None:
        """What the agent took before the prompt *begins*, and never named, it has taken in with another turn."""
        if begins in self._handed:
            place = self._handed.index(begins)
            before, self._handed = self._handed[:place], self._handed[place + 1 :]
            for receipt in self._in(R.SUBMITTED):
                if receipt.id in before:
                    self._step(receipt, R.FINISHED, TAKEN_IN)

    async def aclose(self) -> None:
        """Hand nothing over any more. Idempotent."""
        self._begun()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Hand over what waits, one prompt for each time that the agent is idle."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._pen.session.queue and self._is_free(queued=0):
                async with self._handing:
                    waiting = self._in(R.QUEUED)
                    if not waiting or self.state is not SessionState.IDLE:
                        break
                    try:
                        await self._hand_over(self._prompt(waiting[0].id), waiting[0])
                    except KasmonError:
                        continue  # its receipt says so

    async def _interrupt(self) -> None:
        """End the running turn and wait until it has ended.

        Raises:
            TimedOutError: if it goes on; nothing was prompted then.
        """
        await self._give(Interrupt())
        try:
            async with asyncio.timeout(BEGIN_S):
                while self._state in (SessionState.WORKING, SessionState.ASKING, SessionState.LIMITED):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimedOutError(f"the turn did not end within {BEGIN_S:g} s of the interrupt.") from error
        finally:
            self._changed.set()

    async def _hand_over(self, prompt: Prompt, waiting: Receipt | None = None) -> Receipt:
        """Give *prompt*, new or that of the receipt *waiting*, to the agent; its receipt then.

        Raises:
            KasmonError: if it did not take it; the receipt says so too.
        """
        was_idle = self.state is SessionState.IDLE
        receipt = self._typed(prompt, waiting)
        self._handed.insert(0 if prompt.when == "interrupt" else len(self._handed), receipt.id)
        try:
            await self._give(prompt)
        except TimedOutError as error:
            self._step(self._now(receipt), R.TYPED, error.message)
            if was_idle:
                self._expect()
            raise
        except KasmonError as error:
            self._step(self._now(receipt), R.REFUSED, error.message)
            raise
        return self._submitted(receipt, was_idle=was_idle)

    def _typed(self, prompt: Prompt, waiting: Receipt | None, reason: str = "") -> Receipt:
        """The receipt of *prompt*, new or *waiting* until now, which is being handed over from here on."""
        if waiting is not None:
            return self._step(waiting, R.TYPED, reason)
        receipt = self._receipt(self._pen.session.next_receipt(), prompt, R.TYPED)
        return self._move(msgspec.structs.replace(receipt, reason=reason), prompt)

    def _submitted(self, receipt: Receipt, reason: str = "", *, was_idle: bool) -> Receipt:
        """The receipt after the agent took the prompt."""
        now = self._now(receipt)
        if now.state is R.TYPED:
            now = self._step(now, R.SUBMITTED, reason)
            if was_idle and self.state is SessionState.IDLE:
                self._expect()
        return now

    @property
    def _state(self) -> SessionState:
        """The state as far as turns go: an agent whose turn has ended at its limit is idle, and can be prompted."""
        is_at_rest = self._pen.session.mode is not Mode.TMUX and not self._pen.session.in_turn
        return SessionState.IDLE if self.state is SessionState.LIMITED and is_at_rest else self.state

    def _is_free(self, queued: int | None = None) -> bool:
        waits = self._pen.session.queue if queued is None else queued
        return not waits and self.state is SessionState.IDLE and self._is_open()

    def _is_open(self) -> bool:
        """No turn runs, and none is about to begin."""
        return self._state is SessionState.IDLE and self._expecting is None and not self._handing.locked()

    def _expect(self) -> None:
        self._expecting = asyncio.get_running_loop().call_later(BEGIN_S, self._expected)

    def _expected(self) -> None:
        """No turn began in time."""
        self._begun()

    def _begun(self) -> None:
        if self._expecting is not None:
            self._expecting.cancel()
            self._expecting = None
        self._changed.set()

    def _beginning(self, text: str) -> Receipt | None:
        """The prompt whose turn begins: the oldest of that text on its way, else the oldest."""
        on_the_way = self._in(*ON_THE_WAY)
        same = [receipt for receipt in on_the_way if receipt.text == _shown(text)]
        return next(iter([*same, *on_the_way]), None)

    def _in(self, *states: ReceiptState) -> list[Receipt]:
        return [receipt for receipt in self._pen.session.receipts if receipt.state in states]

    def _now(self, receipt: Receipt) -> Receipt:
        return next((now for now in self._pen.session.receipts if now.id == receipt.id), receipt)

    def _prompt(self, receipt: ReceiptId) -> Prompt:
        fact = self._pen.book.prompts[receipt]
        return Prompt(text=fact.prompt, by=fact.by)

    def _receipt(self, receipt: ReceiptId, prompt: Prompt, state: ReceiptState) -> Receipt:
        return Receipt(id=receipt, session=self._pen.session.id, state=state, text=_shown(prompt.text), at=time.time())

    def _stepped(self, receipt: Receipt, state: ReceiptState, reason: str = "") -> Receipt:
        return msgspec.structs.replace(receipt, state=state, reason=reason, at=time.time())

    def _step(self, receipt: Receipt, state: ReceiptState, reason: str = "") -> Receipt:
        return self._move(self._stepped(receipt, state, reason))

    def _move(self, receipt: Receipt, prompt: Prompt | None = None) -> Receipt:
        moved = ReceiptMoved(at=receipt.at, receipt=receipt)
        if prompt is not None:
            moved = msgspec.structs.replace(moved, prompt=prompt.text, by=prompt.by)
        self._pen.note(moved)
        return receipt


def _shown(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return clean_line(line)[:SHOWN]
