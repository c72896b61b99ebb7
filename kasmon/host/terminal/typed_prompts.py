"""Prompts for an agent in a terminal: typed once it reads, and queued if its idle state is unknown.

A receipt is `typed` from just before the first character, with a reason until the text was seen on the screen. It is
`submitted` when Enter was seen to be accepted, with a reason if that could not be verified. What could not be typed for
a cause that may pass stays queued with that cause, if it was queued; what was typed and not accepted is `lost`.

| the agent | a turn is credited |
|---|---|
| its hooks or its transcript name each prompt that it takes | to the receipt with that text, and to no other |
| nothing of it names a prompt | to the only prompt being delivered, if no user typed since, here or attached |
| neither | to none: the receipt is `unsure` |
"""

import asyncio
import math
import time
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.tmux.input.command_completion import CommandCompletion
from kasmon.backends.tmux.readiness import wait_until_settled
from kasmon.errors import KasmonError, PromptLostError, RefusedError, SessionEndedError, UsageError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.prompts import BEGIN_S, ON_THE_WAY, Prompts
from kasmon.model.commands import Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import SignalSeen, TurnEnded, TurnStarted
from kasmon.model.evidence import claims
from kasmon.model.session_state import SessionState
from kasmon.sanitize import outgoing

if TYPE_CHECKING:
    from kasmon.backends.tmux.agent import TmuxAgent

BEGINS_S: Final = 8.0
"""How long a sender waits while the agent starts; after that the prompt is reported as queued."""
ANSWER_S: Final = 9.0
"""How long a sender waits until the prompt is submitted; after that the log has its progress."""
NOTED_S: Final = 2.0
"""How long the first character waits for the log. A full disk does not block live control: the wait ends then."""
HOLD_S: Final = 2.0
"""How long a queue that could not be typed rests."""
LAST_WORDS_S: Final = 1.0
"""How long senders may still get the outcome of their prompts when the agent has ended."""
HOST_GONE: Final = "its host had ended when it was typed"
BEING_TYPED: Final = "being typed"
UNNAMED: Final = "the agent's own record does not contain this prompt"
SEVERAL: Final = "several prompts were in transit, and it is unknown which of them started the turn"
TYPED_INTO: Final = "a person typed there too, so it is unknown whose prompt started the turn"
END_UNSEEN: Final = "the end of its turn was not observed"
UNKNOWN: Final = "kasmon cannot detect when this program is idle; send with --when now"
TURNS: Final = {
    SessionState.WORKING: True,
    SessionState.ASKING: True,
    SessionState.LIMITED: True,
    SessionState.IDLE: False,
    SessionState.ENDED: False,
}
"""Whether an agent in this judged state is in a turn; in other states that is unknown, and nothing changes."""


OPEN: Final = (ReceiptState.SUBMITTED, ReceiptState.STARTED)
"""Receipts whose turn is awaited, or runs."""
WORDLESS: Final = frozenset({"output", "fallback", "launch"})
"""Sources that do not show when an agent is idle."""


class TypedPrompts(Prompts):
    """The prompts of one agent in a terminal. All are queued until it is ready; then the immediate ones are sent."""

    def __init__(self, log_writer: LogWriter, agent: "TmuxAgent") -> None:
        super().__init__(log_writer, agent.send)
        self._agent = agent
        self._at_ready: list[ReceiptId] = []
        self._begun_to_read = asyncio.Event()
        self._reports_state = False
        self._in_turn = False
        self._is_over = False
        self._being_typed: ReceiptId | None = None
        """The prompt whose Enter was not seen to be accepted yet: no turn can be its own."""
        self._is_named = False
        """Whether the agent named the prompt that is being typed."""
        self._keyed_at: dict[ReceiptId, float] = {}
        """When a user had last typed, as each prompt being delivered began to be typed."""
        self._typed_at: dict[ReceiptId, float] = {}
        """When each prompt being delivered began to be typed, in seconds since the epoch."""
        self._unsure_why: dict[ReceiptId, str] = {}
        """Why no turn is credited to a prompt that is being delivered."""
        self._ended: tuple[ReceiptId, ...] = ()
        self._turns = 0
        self._held: asyncio.TimerHandle | None = None
        """Runs while the queue rests."""
        self._sending: set[asyncio.Task[Receipt]] = set()
        self._running: dict[ReceiptId, asyncio.Task[None]] = {}
        """The shell commands whose end is not known yet."""
        for receipt in self._in(ReceiptState.TYPED):
            self._step(receipt, ReceiptState.LOST, HOST_GONE)
        self._await_turn()

    async def submit(self, prompt: Prompt) -> Receipt:
        """Send *prompt* as `Prompts.submit`; while the agent starts, an immediate prompt waits for it a while.

        Delivery that takes longer than `ANSWER_S` continues in the background: the receipt is then the current one.

        Raises:
            SessionEndedError: if the agent ends before it could be typed to.
            PromptLostError: if it was typed, and acceptance was not observed.
        """
        until = asyncio.get_running_loop().time() + ANSWER_S
        if prompt.when != "idle" and prompt.text.strip() and not self.is_ready:
            await wait_within(BEGINS_S, self._begun_to_read)
        if self._is_over:
            raise SessionEndedError(self._log_writer.session.id)
        sending = asyncio.create_task(super().submit(prompt))
        self._sending.add(sending)
        sending.add_done_callback(self._finish_sending)
        await asyncio.wait([sending], timeout=max(0.0, until - asyncio.get_running_loop().time()))
        if not sending.done():
            for being_typed in self._in(ReceiptState.TYPED):
                if being_typed.id == self._being_typed:
                    return being_typed
        receipt = await asyncio.shield(sending)
        if receipt.state is not ReceiptState.QUEUED:
            return receipt
        if not self.is_ready:
            if prompt.when != "idle":
                self._at_ready.append(receipt.id)
            return receipt
        return receipt if self._reports_state or receipt.reason else self._explain_queue(receipt)

    def queue_first(self, prompt: Prompt) -> None:
        """Have *prompt* typed as soon as the agent is ready, if it is idle then or its state is unknown."""
        self._at_ready.append(self.queue(prompt).id)

    async def begin_when_ready(self) -> None:
        """Wait until the agent, whose program has just started, can be typed to; then begin."""
        await wait_until_settled(self._agent)
        await self.begin(self._agent.reports_state)

    async def begin(self, reports_state: bool) -> None:
        """Start typing: the agent can be typed to. *reports_state*: whether it reports its own state."""
        self.is_ready, self._reports_state = True, reports_state
        for receipt in self._in(ReceiptState.QUEUED):
            if reports_state:
                break  # the queue sees when it is idle
            if receipt.id not in self._at_ready:
                self._explain_queue(receipt)
                continue
            async with self._delivering:
                try:
                    await self._deliver(self._prompt(receipt.id), receipt)
                except KasmonError:
                    continue  # its receipt has the error
        self._begun_to_read.set()
        self._changed.set()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is being typed, and no queued prompt is known to this host alone as due at the start."""
        at_ready = not self.is_ready and any(r.id in self._at_ready for r in self._in(ReceiptState.QUEUED))
        return self._is_over or not (self._delivering.locked() or self._sending or at_ready)

    def resume(self) -> None:
        """Follow the prompts that an earlier host gave to the agent: their turn or command may be over by now."""
        ready_at = max(
            (signal.at for signal in self._log_writer.session.signals if signal.source == "launch"), default=0.0
        )
        self._in_turn = bool(self._in(ReceiptState.STARTED))
        taken = [r for r in self._in(ReceiptState.SUBMITTED, ReceiptState.STARTED) if r.at >= ready_at]
        if not taken:  # or they are of a program that ran before this one
            return
        if (completion := self._agent.delivery.resume_completion()) is not None:
            self._follow(taken[-1], completion)
            return
        submitted = {receipt.id for receipt in taken if receipt.state is ReceiptState.SUBMITTED}
        asyncio.get_running_loop().call_later(BEGIN_S, self._mark_unsure, submitted)

    def end(self) -> None:
        """Stop typing: the agent has ended, or was lost."""
        self.is_ready, self._is_over = False, True
        self._begun_to_read.set()

    async def aclose(self) -> None:
        """Stop typing, once the current senders got their outcome. Idempotent."""
        self._is_over = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=LAST_WORDS_S)
        for task in (*self._sending, *self._running.values()):
            task.cancel()
        if self._held is not None:
            self._held.cancel()
        await super().aclose()

    async def handle_signal(self, signal: SignalSeen) -> None:
        """Process *signal*, which was noted, as the beginning or the end of a turn, if it is one."""
        await self._note_attached_keys()
        was_in_turn = self._in_turn
        session = self._log_writer.session
        self._reports_state = any(claims(known) for known in session.signals if known.source not in WORDLESS)
        if signal.source == "program" or self._reports_state:
            self._in_turn = TURNS.get(session.state, self._in_turn and self._reports_state)
        if signal.prompt:
            self._credit_named(signal.prompt)
        if self._in_turn and not was_in_turn:
            self._turns += 1
            self._ended = ()
            self.handle_event(TurnStarted(at=signal.at))
        elif not self._in_turn and (was_in_turn or (signal.source == "hook" and "idle" in signal.value)):
            self._credit_unnamed()
            self._ended = (*self._ended, *(receipt.id for receipt in self._in(ReceiptState.STARTED)))
            self.handle_event(self._turn_end(signal.at))
        else:
            self.handle_event(signal)
        if signal.tells_failure and session.state is not SessionState.WORKING:
            if not was_in_turn and not (self._agent.names_prompts and self._has_named):
                self._begin_unseen()
            self._note_failure(session.turn_error)

    def _turn_end(self, at: float) -> TurnEnded:
        session = self._log_writer.session
        return TurnEnded(at=at, reason="error" if session.turn_ended == "error" else "done", error=session.turn_error)

    def _begin_unseen(self) -> None:
        """Credit a failed turn whose beginning was not observed, if a prompt was accepted since the last one."""
        if self._in(ReceiptState.SUBMITTED):
            self._ended = ()
            if (begins := self._sole_candidate()) is not None:
                self._stop_expecting()
                self._move(begins)

    def _note_failure(self, error: str) -> None:
        """Mark the running turn, or the one that ended last, as failed with *error*: a source may report that later."""
        for receipt in self._in(ReceiptState.STARTED, ReceiptState.FINISHED, ReceiptState.FAILED):
            is_its = receipt.state is ReceiptState.STARTED or receipt.id in self._ended
            if is_its and (receipt.state, receipt.reason) != (ReceiptState.FAILED, error):
                self._ended = (*(known for known in self._ended if known != receipt.id), receipt.id)
                self._step(receipt, ReceiptState.FAILED, error)

    def _credit_named(self, digest: str) -> None:
        """Credit the turn that runs, or is about to, to the prompt with *digest*, which the agent named."""
        if (named := self._named(digest)) is None:
            return
        if named.id == self._being_typed:
            self._is_named = True
            return
        self._stop_expecting()
        self._move(named)
        if not self._in_turn:  # its end may have been reported before it
            self._ended = ()
            asyncio.get_running_loop().call_later(BEGIN_S, self._mark_unsure, {named.id})

    @property
    def _has_named(self) -> bool:
        """Whether a hook or the transcript reported since the agent's start: hooks may be off, a transcript missing."""
        return any(signal.source in ("hook", "transcript") for signal in self._log_writer.session.signals)

    def _credit_unnamed(self) -> None:
        """Credit the turn that ends now, of an agent whose hooks and transcript never reported anything."""
        if self._agent.names_prompts and not self._has_named and (begins := self._sole_candidate()) is not None:
            self._move(begins)

    async def _note_attached_keys(self) -> None:
        """Doubt the prompts being delivered if a user has typed in an attached terminal since the first character.

        Such keys do not pass through kasmon. Before the first character the last one was at least a second ago.
        """
        waiting = {receipt.id for receipt in self._in(*ON_THE_WAY)} & self._typed_at.keys()
        if not waiting or (self._agent.names_prompts and self._has_named):
            return
        try:
            keyed_at = await self._agent.read_last_key_at()
        except KasmonError:
            keyed_at = math.inf  # unknown
        self._unsure_why |= {one: TYPED_INTO for one in waiting if keyed_at >= math.floor(self._typed_at[one])}

    def _sole_candidate(self) -> Receipt | None:
        """Return the receipt, as started, of the only prompt that can have begun the running turn."""
        waiting = [receipt for receipt in self._in(ReceiptState.SUBMITTED) if receipt.id != self._being_typed]
        if len(waiting) > 1:
            self._unsure_why |= {receipt.id: SEVERAL for receipt in waiting}
        elif waiting and self._agent.keyed_at != self._keyed_at.get(waiting[0].id):
            self._unsure_why[waiting[0].id] = TYPED_INTO
        elif waiting and self._unsure_why.get(waiting[0].id) != TYPED_INTO:
            return self._started(waiting[0], "alone")
        return None

    async def _deliver(self, prompt: Prompt, waiting: Receipt | None = None) -> Receipt:
        if waiting is not None:
            prompt = msgspec.structs.replace(prompt, when="idle")
        entry = _Entry(self, self._log_writer, prompt, waiting)
        was_idle, turns = self.state is SessionState.IDLE, self._turns
        try:
            doubt = await self._agent.delivery.deliver(prompt, entry)
            await self._note_attached_keys()
        except KasmonError as error:
            if (waits := self._handle_failure(entry, error)) is None:
                raise
            return waits
        finally:
            is_named, self._being_typed, self._is_named = self._is_named, None, False
        assert entry.receipt is not None
        receipt = self._submitted(entry.receipt, doubt, was_idle=was_idle)
        has_begun = self._turns > turns  # before it was seen to be accepted
        begins = self._started(receipt, "text") if is_named else None
        if has_begun and begins is None and not self._agent.names_prompts:
            begins = self._sole_candidate()
        if receipt.state is ReceiptState.SUBMITTED and begins is not None:
            self._stop_expecting()
            receipt = self._move(begins)
            if has_begun and not self._in_turn:
                self._ended = (receipt.id,)
                receipt = self._end(receipt, self._turn_end(time.time()))
            elif not self._in_turn:
                asyncio.get_running_loop().call_later(BEGIN_S, self._mark_unsure, {receipt.id})
        if (completion := self._agent.delivery.completion) is not None:
            self._follow(receipt, completion)
        return receipt

    def _follow(self, receipt: Receipt, completion: CommandCompletion) -> None:
        async def follow() -> None:
            ended = await completion.wait_for_end()
            self._running.pop(receipt.id)
            now = self._now(receipt)
            if now.state in (*OPEN, ReceiptState.FINISHED, ReceiptState.FAILED, ReceiptState.UNSURE):
                finished = self._stepped(now, ReceiptState.FINISHED, ended.why)
                self._move(msgspec.structs.replace(finished, exit_code=ended.exit_code))
            self._stop_expecting()  # the next one need not wait for a turn of this one

        self._running[receipt.id] = asyncio.create_task(follow())

    def _move(self, receipt: Receipt, prompt: Prompt | None = None) -> Receipt:
        is_over = receipt.state in (ReceiptState.FINISHED, ReceiptState.FAILED, ReceiptState.UNSURE)
        if is_over and receipt.id in self._running:
            return self._now(receipt)  # the command outlasts its turn: its exit code is still to come
        return super()._move(receipt, prompt)

    def begin_typing(self, prompt: Prompt, waiting: Receipt | None) -> tuple[Receipt, str]:
        """Return the receipt of *prompt*, which is typed from now on, and its text, which may have changed in the
        queue.

        Raises:
            RefusedError: if it was deleted from the queue.
        """
        text = prompt.text
        if waiting is not None:
            waiting = self._now(waiting)
            if waiting.state is not ReceiptState.QUEUED:
                raise RefusedError(f"the prompt {waiting.id!r} was deleted from the queue.")
            text = self._prompt(waiting.id).text
        receipt = self._typed(prompt, waiting, BEING_TYPED)
        self._being_typed = receipt.id
        self._keyed_at[receipt.id], self._typed_at[receipt.id] = self._agent.keyed_at, time.time()
        return receipt, text

    def mark_visible(self, receipt: Receipt) -> None:
        """Record that all of a prompt's text was seen where it was typed."""
        self._step(self._now(receipt), ReceiptState.TYPED)

    def _handle_failure(self, entry: "_Entry", error: KasmonError) -> Receipt | None:
        """Record why a prompt was not accepted; return its receipt, if it stays queued."""
        known = entry.receipt or entry.waiting
        if entry.receipt is not None and isinstance(error, PromptLostError):
            if self._is_named:
                return self._move(self._started(self._now(entry.receipt), "text"))
            self._step(self._now(entry.receipt), ReceiptState.LOST, error.why)
            return None
        if entry.prompt.when != "idle" or isinstance(error, UsageError):
            known = known or self.begin_typing(entry.prompt, None)[0]
            self._step(self._now(known), ReceiptState.REFUSED, error.message)
            return None
        if self._held is None:
            self._held = asyncio.get_running_loop().call_later(HOLD_S, self._release_queue)
        if known is None:
            return self.queue(entry.prompt, error.message)
        known = self._now(known)
        is_new = (known.state, known.reason) != (ReceiptState.QUEUED, error.message)
        if is_new and known.state in (ReceiptState.QUEUED, ReceiptState.TYPED):
            forgotten = entry.prompt if entry.receipt is not None else None  # the log keeps the text of queued prompts
            known = self._move(self._stepped(known, ReceiptState.QUEUED, error.message), forgotten)
        return known

    def _release_queue(self) -> None:
        self._held = None
        self._changed.set()

    def _is_free(self, queued: int | None = None) -> bool:
        return self._held is None and super()._is_free(queued)

    def _as_sent(self, text: str) -> str:
        return outgoing(text)

    def _beginning(self, turn: TurnStarted) -> Receipt | None:
        return None if self._agent.names_prompts else self._sole_candidate()

    def _await_turn(self) -> None:
        if taken := {receipt.id for receipt in self._in(*OPEN)}:
            asyncio.get_running_loop().call_later(BEGIN_S, self._mark_unsure, taken)

    def _mark_unsure(self, taken: set[ReceiptId]) -> None:
        super()._mark_unsure(taken)
        if self.state is SessionState.IDLE and not self._in_turn and not self._is_over:
            for receipt in self._in(ReceiptState.STARTED):
                if receipt.id in taken:
                    self._step(receipt, ReceiptState.UNSURE, END_UNSEEN)

    def _why_unsure(self, receipt: Receipt) -> str:
        if self._agent.names_prompts and self._has_named:
            return UNNAMED
        return self._unsure_why.get(receipt.id) or super()._why_unsure(receipt)

    def _finish_sending(self, sending: asyncio.Task[Receipt]) -> None:
        self._sending.discard(sending)
        if not sending.cancelled():
            sending.exception()  # its receipt has the error

    def _explain_queue(self, receipt: Receipt) -> Receipt:
        """Return *receipt*, which is queued, with the reason why that may take long."""
        return self._step(receipt, receipt.state, UNKNOWN)


class _Entry:
    def __init__(self, prompts: TypedPrompts, log_writer: LogWriter, prompt: Prompt, waiting: Receipt | None) -> None:
        self.receipt: Receipt | None = None
        """The prompt's receipt, from the moment before its first character."""
        self.prompt, self.waiting = prompt, waiting
        self._prompts, self._log_writer = prompts, log_writer

    async def begin(self) -> str:
        """Log that it is being typed, so that no later host types it again. Idempotent."""
        if self.receipt is not None:
            return self.prompt.text
        self.receipt, text = self._prompts.begin_typing(self.prompt, self.waiting)
        self.prompt = msgspec.structs.replace(self.prompt, text=text)
        await self._log_writer.wait_for_write(NOTED_S)
        return text

    def mark_visible(self) -> None:
        if self.receipt is not None:
            self._prompts.mark_visible(self.receipt)
