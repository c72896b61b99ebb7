"""Delivers prompts to the agent: which are sent now, which are queued, and the receipt of each.

A receipt's states in the log: `queued` (waits for the turn to end), `typed` (being delivered), `submitted` (the agent
accepted it), `started`, then `finished` or, if its turn ended in an error, `failed`. A turn is credited to the prompt
whose text the agent names; a prompt of which no turn is known to have come is `unsure`. A queue survives its host: the
next host delivers what was `queued`. It does not deliver what was `typed`, since the agent may have it: no prompt is
ever delivered twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.errors import KasmonError, NotFoundError, RefusedError, SessionBusyError, TimedOutError, UsageError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.budget_gate import BudgetGate
from kasmon.host.session.peer_limits import PeerMessageLimiter
from kasmon.model.commands import (
    HELD,
    LINK_ID_LENGTH,
    NO_TURN,
    AgentCommand,
    Interrupt,
    Mode,
    Prompt,
    Receipt,
    ReceiptId,
    ReceiptState,
    Requeue,
    prompt_digest,
)
from kasmon.model.events import Event, NoticeRaised, QueueOrdered, ReceiptChanged, TurnEnded, TurnStarted
from kasmon.model.session_state import SessionState
from kasmon.sanitize import clean_line, first_line

QUEUE: Final = 100
BEGIN_S: Final = 10.0
"""How long the turn of a prompt that an idle agent accepted may take to begin, before the next may be sent."""
SHOWN: Final = 200
KEY_LENGTH: Final = 80
TAKEN_IN = "the agent accepted it but never confirmed it: it may have become part of another turn"
DROPPED = "the turn ended before the agent had accepted it"
TAKEN_BACK = "taken back"
REST_LOOK_S: Final = 0.1
"""How often a host that hands over checks whether the turn has ended, in seconds."""
NOT_STEERED = "this agent accepts nothing during a turn; the prompt is queued until it ends"
LIMITED = "its usage limit was reached"
UNWRITTEN = "its delivery cannot be logged: the disk may be full"
HOLD_LOOK_S: Final = 1.0
"""How often a queue that a budget or a full disk holds looks whether it still does, in seconds."""
ON_THE_WAY = (ReceiptState.TYPED, ReceiptState.SUBMITTED)
CREDITABLE = (*ON_THE_WAY, ReceiptState.UNSURE)
"""The states of receipts whose prompt an agent may still name."""
ASLEEP = (SessionState.STANDBY, SessionState.PAUSED)

R = ReceiptState


class Prompts:
    """The prompts of one agent; `send` sends a command to it."""

    def __init__(
        self, log_writer: LogWriter, send: Callable[[AgentCommand], Awaitable[None]], *, steers: bool = True
    ) -> None:
        """*steers*: a prompt can go to the agent while a turn runs; else it waits for the turn's end."""
        self._steers = steers
        self.is_ready = False
        """Whether the agent has reported that it runs; until then every prompt is queued."""
        self.is_leaving = False
        """Whether the host hands over: prompts that are not with the agent yet wait for the next host."""
        self._log_writer = log_writer
        self._budget_gate = BudgetGate(log_writer)
        self._hold_timer: asyncio.TimerHandle | None = None
        self._peer_limiter = PeerMessageLimiter(log_writer.session_log)
        self._send_command = send
        self._delivering = asyncio.Lock()
        self._delivered: list[ReceiptId] = []
        """The prompts that the agent got and began no turn with yet, in the order in which it takes them."""
        self._expecting: asyncio.TimerHandle | None = None
        """Runs while an idle agent has a prompt whose turn has not begun."""
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def state(self) -> SessionState:
        """The session's state for prompts: idle for an agent in a paused sandbox, since a prompt resumes it."""
        if not self.is_ready:
            return SessionState.STARTING
        state = self._log_writer.session.state
        return SessionState.IDLE if state in ASLEEP else state

    async def submit(self, prompt: Prompt) -> Receipt:
        """Send *prompt* to the agent as its `when` requires; the receipt shows how far it came.

        Raises:
            UsageError: if it is empty, or a peer's and too long.
            SessionBusyError: if the agent is busy and *prompt* is not to interrupt it.
            RefusedError: if too many are queued, a peer's is not admitted, or the agent does not accept it.
            TimedOutError: if the agent did not react; it is then unknown whether it has the prompt.
        """
        if not prompt.text.strip():
            raise UsageError("a prompt must not be empty.")
        if prompt.key and (repeated := self._find(prompt.key)) is not None:
            return repeated
        prompt = self._peer_limiter.admit(prompt, time.time())
        if prompt.when == "refuse" and not self._is_free():
            state = self.state if self.state is not SessionState.IDLE else SessionState.WORKING
            raise SessionBusyError(self._log_writer.session.name or self._log_writer.session.id, state)
        is_starting = not self.is_ready or (self.state is SessionState.STARTING and not prompt.anyway)
        if is_starting or (prompt.when == "idle" and not self._is_free()):
            return self.queue(prompt)
        if prompt.when == "now" and not self._steers and not self._is_open():
            return self.queue(prompt, NOT_STEERED)
        async with self._delivering:
            if prompt.when == "interrupt" and self._state is not SessionState.IDLE:
                await self._interrupt()
            try:
                return await self._deliver(prompt)
            finally:
                self._changed.set()

    def queue(self, prompt: Prompt, why: str = "") -> Receipt:
        """Queue *prompt* until the agent is idle; *why* explains an unusual reason to its sender.

        Raises:
            RefusedError: if too many are queued already.
        """
        session = self._log_writer.session
        if session.queue >= QUEUE:
            raise RefusedError(f"session {session.id!r} already has {QUEUE} queued prompts.")
        receipt = self._receipt(session.next_receipt(), prompt, R.QUEUED)
        receipt = self._move(msgspec.structs.replace(receipt, reason=why), prompt)
        self._changed.set()
        return receipt

    def requeue(self, command: Requeue) -> Receipt:
        """Change, move or take back a queued prompt; return its receipt after that.

        Raises:
            NotFoundError: if there is no such receipt.
            RefusedError: if its prompt is no longer queued; nothing changed then.
            UsageError: if it would be empty, or a redacted part of it was changed.
        """
        receipt = next((known for known in self._log_writer.session.receipts if known.id == command.receipt), None)
        if receipt is None:
            raise NotFoundError(f"there is no prompt {command.receipt!r}.", hint="`kasmon show` lists the receipts.")
        if receipt.state is not R.QUEUED:
            raise RefusedError(f"the prompt {receipt.id!r} is {receipt.state}: it is no longer queued.")
        if command.text is not None and not command.text.strip():
            raise UsageError("a prompt must not be empty.", hint="Delete it from the queue instead.")
        if command.drop:
            return self._step(receipt, R.REFUSED, TAKEN_BACK)
        if command.place is not None:
            order = [waiting.id for waiting in self._in(R.QUEUED) if waiting.id != receipt.id]
            order.insert(max(0, command.place), receipt.id)
            self._log_writer.note(QueueOrdered(at=time.time(), receipts=tuple(order)))
        if command.text is not None:
            text = self._log_writer.session_log.restored(receipt.id, command.text)
            prompt = msgspec.structs.replace(self._prompt(receipt.id), text=text)
            changed = self._receipt(receipt.id, prompt, R.QUEUED)
            receipt = self._move(msgspec.structs.replace(receipt, text=changed.text, digest=changed.digest), prompt)
        return receipt

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn runs and none is about to begin."""
        return self._is_open()

    async def rest(self) -> None:
        """Send nothing more to the agent, and return when what it has is finished."""
        self.is_leaving = True
        while True:
            if self.is_at_rest:
                return
            await asyncio.sleep(REST_LOOK_S)

    def handle_event(self, event: Event) -> None:
        """Move receipts according to *event*, after it was noted."""
        if isinstance(event, TurnStarted):
            self._stop_expecting()
            if event.by != "agent" and (begins := self._beginning(event)) is not None:
                self._mark_passed_over(begins.id)
                self._move(begins)
        elif isinstance(event, TurnEnded):
            self._stop_expecting()
            for receipt in self._in(R.STARTED):
                self._end(receipt, event)
            self._await_turn()
            for text in event.dropped:
                if same := [receipt for receipt in self._in(*ON_THE_WAY) if receipt.text == _first_line(text)]:
                    self._step(same[0], R.LOST, DROPPED)
        self._changed.set()

    def _end(self, receipt: Receipt, event: TurnEnded) -> Receipt:
        if event.reason in ("error", "limit"):
            return self._step(receipt, R.FAILED, event.error or (LIMITED if event.reason == "limit" else event.reason))
        return self._step(receipt, R.FINISHED, "" if event.reason == "done" else event.error or event.reason)

    def _await_turn(self) -> None:
        """Mark prompts being delivered now as unsure if no turn comes of them within `BEGIN_S`."""
        if taken := {receipt.id for receipt in self._in(*ON_THE_WAY)}:
            asyncio.get_running_loop().call_later(BEGIN_S, self._mark_unsure, taken)

    def _mark_unsure(self, taken: set[ReceiptId]) -> None:
        """Mark the *taken* prompts as unsure that are still being delivered, if no turn runs."""
        if self._task.done() or self._delivering.locked() or self.state is not SessionState.IDLE:
            return
        for receipt in self._in(*ON_THE_WAY):
            if receipt.id in taken:
                why = self._why_unsure(receipt)
                self._step(receipt, R.UNSURE, f"{why}; {receipt.reason}" if receipt.reason else why)
        self._changed.set()

    def _why_unsure(self, receipt: Receipt) -> str:
        """Return why it is unknown which turn carried the prompt of *receipt*."""
        return NO_TURN

    def _mark_passed_over(self, begins: ReceiptId) -> None:
        """Mark prompts accepted before *begins* and never named as unsure: they may have joined another turn."""
        if begins in self._delivered:
            place = self._delivered.index(begins)
            before, self._delivered = self._delivered[:place], self._delivered[place + 1 :]
            for receipt in self._in(R.SUBMITTED):
                if receipt.id in before:
                    self._step(receipt, R.UNSURE, TAKEN_IN)

    async def aclose(self) -> None:
        """Stop delivering. Idempotent."""
        self._stop_expecting()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        """Deliver queued prompts, one for each time that the agent is idle."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._log_writer.session.queue and self._is_free(queued=0):
                first = self._in(R.QUEUED)[:1]
                if first and (await self._is_held(first[0]) or not await self._log_writer.wait_for_disk()):
                    self._schedule_check()
                    break
                async with self._delivering:
                    waiting = self._in(R.QUEUED)
                    if not waiting or self.state is not SessionState.IDLE or self._expecting or self.is_leaving:
                        break  # something came while the budget was checked
                    if waiting[0].id != first[0].id:
                        continue
                    try:
                        await self._deliver(self._prompt(waiting[0].id), waiting[0])
                    except KasmonError:
                        continue  # its receipt has the error
                if self._now(waiting[0]).state is R.QUEUED:
                    self._schedule_check()
                    break

    def _schedule_check(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self._hold_timer = asyncio.get_running_loop().call_later(HOLD_LOOK_S, self._changed.set)

    async def _is_held(self, receipt: Receipt) -> bool:
        """Whether a budget holds the queued prompt of *receipt*; if so, its reason says why."""
        is_free = self._prompt(receipt.id).over_budget
        why = "" if is_free else await asyncio.to_thread(self._budget_gate.find_hold)
        held = f"{HELD}: {why}" if why else ""
        now = self._now(receipt)
        if held and now.state is R.QUEUED and now.reason != held:
            if not now.reason.startswith(HELD):
                text = f"A queued prompt is held: {why}"
                self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="warning"))
            self._step(now, R.QUEUED, held)
        return bool(held)

    async def _interrupt(self) -> None:
        """End the running turn and wait until it has ended. Raises `TimedOutError` if it continues."""
        await self._send_command(Interrupt())
        try:
            async with asyncio.timeout(BEGIN_S):
                while self._state in (SessionState.WORKING, SessionState.ASKING, SessionState.LIMITED):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimedOutError(f"the turn did not end within {BEGIN_S:g} s of the interrupt.") from error
        finally:
            self._changed.set()

    async def _deliver(self, prompt: Prompt, waiting: Receipt | None = None) -> Receipt:
        """Send *prompt*, new or of the queued receipt *waiting*, to the agent; return its receipt then.

        Raises:
            KasmonError: if the agent did not accept it; the receipt has the error too.
        """
        was_idle = self.state is SessionState.IDLE
        receipt = self._typed(prompt, waiting)
        if (
            waiting is not None and not await self._log_writer.wait_for_disk()
        ):  # else the next host would deliver it again
            return self._move(self._stepped(self._now(receipt), R.QUEUED, UNWRITTEN), prompt)
        self._delivered.insert(0 if prompt.when == "interrupt" else len(self._delivered), receipt.id)
        try:
            await self._send_command(prompt)
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
        """Return the receipt of *prompt*, new or queued as *waiting*, in the state `typed`."""
        if waiting is not None:
            return self._step(waiting, R.TYPED, reason)
        receipt = self._receipt(self._log_writer.session.next_receipt(), prompt, R.TYPED)
        return self._move(msgspec.structs.replace(receipt, reason=reason), prompt)

    def _submitted(self, receipt: Receipt, reason: str = "", *, was_idle: bool) -> Receipt:
        now = self._now(receipt)
        if now.state is R.TYPED:
            now = self._step(now, R.SUBMITTED, reason)
            if was_idle and self.state is SessionState.IDLE:
                self._expect()
        return now

    @property
    def _state(self) -> SessionState:
        """The state as far as turns go: an agent whose turn has ended at its limit is idle, and can be prompted."""
        is_at_rest = self._log_writer.session.mode is not Mode.TMUX and not self._log_writer.session.in_turn
        return SessionState.IDLE if self.state is SessionState.LIMITED and is_at_rest else self.state

    def _is_free(self, queued: int | None = None) -> bool:
        waits = self._log_writer.session.queue if queued is None else queued
        return not waits and not self.is_leaving and self.state is SessionState.IDLE and self._is_open()

    def _is_open(self) -> bool:
        """Whether no turn runs, and none is about to begin."""
        return self._state is SessionState.IDLE and self._expecting is None and not self._delivering.locked()

    def _expect(self) -> None:
        self._expecting = asyncio.get_running_loop().call_later(BEGIN_S, self._handle_missing_turn)

    def _handle_missing_turn(self) -> None:
        self._mark_unsure({receipt.id for receipt in self._in(*ON_THE_WAY)})
        self._stop_expecting()

    def _stop_expecting(self) -> None:
        if self._expecting is not None:
            self._expecting.cancel()
            self._expecting = None
        self._changed.set()

    def _beginning(self, turn: TurnStarted) -> Receipt | None:
        """Return the receipt of the prompt whose *turn* begins, in its new state; None if there is none.

        That is the oldest with its text. A turn whose agent names no text is that of the only prompt being delivered.
        """
        if digest := turn.digest or (prompt_digest(turn.prompt) if turn.prompt else ""):
            return self._named(digest)
        on_the_way = self._in(*ON_THE_WAY)
        return self._started(on_the_way[0], "alone") if len(on_the_way) == 1 else None

    def _named(self, digest: str) -> Receipt | None:
        """Return the oldest receipt with *digest* that has no turn yet, in its state at the turn's beginning."""
        same = [receipt for receipt in self._in(*CREDITABLE) if receipt.digest == digest]
        return self._started(same[0], "text") if same else None

    def _started(self, receipt: Receipt, carried_by: Literal["text", "alone"]) -> Receipt:
        return msgspec.structs.replace(self._stepped(receipt, R.STARTED), carried_by=carried_by)

    def _in(self, *states: ReceiptState) -> list[Receipt]:
        return [receipt for receipt in self._log_writer.session.receipts if receipt.state in states]

    def _now(self, receipt: Receipt) -> Receipt:
        return next((now for now in self._log_writer.session.receipts if now.id == receipt.id), receipt)

    def _prompt(self, receipt: ReceiptId) -> Prompt:
        fact = self._log_writer.session_log.prompts[receipt]
        return Prompt(
            text=fact.prompt,
            by=fact.by,
            login=fact.login,
            over_budget=fact.over_budget,
            images=fact.images,
            actor=fact.receipt.actor,
        )

    def _receipt(self, receipt: ReceiptId, prompt: Prompt, state: ReceiptState) -> Receipt:
        return Receipt(
            id=receipt,
            session=self._log_writer.session.id,
            state=state,
            text=_first_line(prompt.text),
            at=time.time(),
            digest=prompt_digest(self._as_sent(prompt.text)),
            by=prompt.by,
            key=prompt.key[:KEY_LENGTH],
            actor=prompt.actor,
        )

    def _find(self, key: str) -> Receipt | None:
        return next((each for each in self._log_writer.session.receipts if each.key == key[:KEY_LENGTH]), None)

    def _as_sent(self, text: str) -> str:
        return text

    def _stepped(self, receipt: Receipt, state: ReceiptState, reason: str = "") -> Receipt:
        return msgspec.structs.replace(receipt, state=state, reason=reason, at=time.time())

    def _step(self, receipt: Receipt, state: ReceiptState, reason: str = "") -> Receipt:
        return self._move(self._stepped(receipt, state, reason))

    def _move(self, receipt: Receipt, prompt: Prompt | None = None) -> Receipt:
        moved = ReceiptChanged(at=receipt.at, receipt=receipt)
        if prompt is not None:
            login = clean_line(prompt.login[:LINK_ID_LENGTH])
            moved = msgspec.structs.replace(
                moved,
                prompt=prompt.text,
                by=prompt.by,
                login=login,
                over_budget=prompt.over_budget,
                images=tuple(msgspec.structs.replace(each, data=b"", path="") for each in prompt.images),
            )
        self._log_writer.note(moved)
        return receipt


def _first_line(text: str) -> str:
    return clean_line(first_line(text))[:SHOWN]
