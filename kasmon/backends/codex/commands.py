"""Send commands to codex, as calls of its protocol."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from kasmon.backends.base import AgentOutput
from kasmon.backends.codex.request_registry import CodexAnswerOutcome
from kasmon.backends.codex.settings import change, planned
from kasmon.backends.codex.translator import NO_LONGER, CodexTranslator
from kasmon.backends.codex.transport import CallRefusedError, CodexTransport
from kasmon.backends.common.json_access import Table, rows, text
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer, Configure, Prompt
from kasmon.model.events import NoticeRaised, RequestWithdrawn
from kasmon.model.permission import Decision, Request

EXPLAIN_S: Final = 3.0
"""How long codex may take to accept the reason of a denial before it is denied without, in seconds."""
GO: Final = "Implement the plan."
"""What codex's own screen sends when the user approves a plan."""


class CommandSender:
    """Sends the commands of one session; *emit* gets the resulting events at once.

    All of them raise `RefusedError` if codex rejects a command, and `SessionEndedError` if it has ended.
    """

    def __init__(self, transport: CodexTransport, translator: CodexTranslator, emit: Callable[..., None]) -> None:
        self._transport = transport
        self._translator = translator
        self._emit = emit

    async def prompt(self, prompt: Prompt) -> None:
        """Begin a turn, or add the prompt to the running one."""
        main = self._translator.main
        told: Table = {"threadId": main, "input": _input(prompt.text)}
        if turn := self._translator.turns.get(main):
            self._translator.given.steer(prompt)
            try:
                await self._transport.call("turn/steer", {**told, "expectedTurnId": turn})
            except CallRefusedError:
                self._translator.given.forget(prompt)
                if self._translator.turns.get(main) == turn:
                    raise
            else:
                return
        self._translator.given.expect(prompt)
        try:
            await self._transport.call("turn/start", told)
        except BaseException:
            self._translator.given.forget(prompt)
            raise

    async def answer(self, answer: Answer) -> None:
        """Send codex the answer to its call, once all questions of the same call have one.

        Raises:
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts it.
        """
        if answer.decision is Decision.LATER:
            return
        plan = self._translator.plan
        if plan is not None and answer.request == plan.id:
            await self._approve(plan, answer)
            return
        outcome = self._translator.asks.take(answer)
        now = time.time()
        self._emit(*(RequestWithdrawn(at=now, request=other, why=NO_LONGER) for other in outcome.withdrawn))
        if outcome.call is None:
            return
        if outcome.reason:
            await self._explain(outcome)
        if outcome.allowed:
            self._translator.record_approval(outcome.call, outcome.item)
        await self._transport.answer(outcome.call, outcome.result)
        if outcome.interrupt:
            await self.interrupt()

    async def interrupt(self) -> None:
        """End all turns, and the commands that codex waits for: codex would let them run."""
        commands = self._translator.foreground()
        for thread, turn in list(self._translator.turns.items()):
            with contextlib.suppress(CallRefusedError):  # it ended by itself
                await self._transport.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        for thread in sorted(set(commands.values())):
            await self._end_commands(thread, [command for command, of in commands.items() if of == thread])

    async def configure(self, command: Configure) -> None:
        """Change the model or the permission mode from the next turn on."""
        await self._set(change(self._translator.settings, command.model, command.permission_mode))

    async def _set(self, changes: Table) -> None:
        if changes:
            await self._transport.call("thread/settings/update", {"threadId": self._translator.main, **changes})

    async def _explain(self, outcome: CodexAnswerOutcome) -> None:
        """Send the reason of a denial as a message in the same turn: the model gets it right after the denial."""
        turn = self._translator.turns.get(outcome.thread, "")
        said = _input(f"I declined that: {outcome.reason}")
        try:
            async with asyncio.timeout(EXPLAIN_S):
                await self._transport.call(
                    "turn/steer", {"threadId": outcome.thread, "expectedTurnId": turn, "input": said}
                )
        except (CallRefusedError, TimeoutError):
            self._warn("The request was denied; codex could not receive the reason.")

    async def _approve(self, plan: Request, answer: Answer) -> None:
        """Let codex implement its *plan*, or send it the reason of the denial."""
        must_fit(plan, answer)
        self._translator.plan = None
        if answer.decision is Decision.ALLOW:
            await self._set(planned(self._translator.settings))
            await self.prompt(Prompt(text=GO))
        elif answer.reason.strip():
            await self.prompt(Prompt(text=answer.reason))

    async def _end_commands(self, thread: str, commands: Sequence[str]) -> None:
        """End *commands* of *thread*. A command that had hardly begun ended with its turn; codex does not report it."""
        try:
            listed = rows(await self._transport.call("thread/backgroundTerminals/list", {"threadId": thread}), "data")
            running = {text(terminal, "itemId"): text(terminal, "processId") for terminal in listed}
            for command in commands:
                if command in running:
                    ended = {"threadId": thread, "processId": running[command]}
                    await self._transport.call("thread/backgroundTerminals/terminate", ended)
                else:
                    self._emit(*self._translator.give_up(command, time.time()))
        except CallRefusedError:
            self._warn("Codex was interrupted; a command that it had started may still run.")

    def _warn(self, words: str) -> None:
        said: AgentOutput = NoticeRaised(at=time.time(), text=words, level="warning")
        self._emit(said)


def _input(words: str) -> list[Table]:
    return [{"type": "text", "text": words, "text_elements": []}]
