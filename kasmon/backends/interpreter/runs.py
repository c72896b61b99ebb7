"""Code on its way into a sandbox and back: once for each id, as facts of its turn, and with what is kept of it."""

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kasmon.backends.base import Learned
from kasmon.backends.interpreter import words
from kasmon.backends.interpreter.diary import Diary
from kasmon.backends.interpreter.life import Life
from kasmon.backends.interpreter.mailbox import Mailbox
from kasmon.backends.interpreter.past import NEVER_RAN, Begun, Past
from kasmon.backends.interpreter.shown import Output, Shown
from kasmon.backends.interpreter.threads import Threads
from kasmon.errors import AgentLostError, KasmonError, RefusedError, SandboxError
from kasmon.model.command import Launch, Run, Sender
from kasmon.model.event import ToolStarted
from kasmon.model.sandbox import MIB, SIZES, Interpreter, Ran
from kasmon.model.task import environment
from kasmon.sandbox.box import Box
from kasmon.sandbox.within import Reaction

REMEMBERED: Final = 64
"""What came of so many runs is known, so that the same one asked for again does not run again."""
AGAIN_S, TRIES = 0.05, 20
"""How often, and how often at most, an interrupt is tried of a run that its interpreter does not have yet."""
WENT_ON: Final = "Its host ended while it ran, and another one found it again; not all that it printed was shown live."
BY_LOG: Final = "It ended under a host before this one. This is what the log has of it, stdout and stderr in one."


Value = TypeVar("Value")
Beside = Callable[[Coroutine[Any, Any, Value]], asyncio.Task[Value]]


class Runs:
    """The runs of one session."""

    def __init__(
        self, launch: Launch, box: Box, life: Life, diary: Diary, threads: Threads, mailbox: Mailbox, past: Past
    ) -> None:
        self.last: Interpreter = "bash"
        """The interpreter that was used last."""
        self._launch = launch
        self._box = box
        self._life = life
        self._diary = diary
        self._threads = threads
        self._mailbox = mailbox
        self._past = past
        self._ended = dict(past.ended)
        self._known: OrderedDict[str, asyncio.Future[Ran]] = OrderedDict()
        self._going: dict[str, Interpreter] = {}
        """What runs or waits for that, by its id."""

    async def take_up(self, beside: Beside[Ran]) -> None:
        """Learn beside what comes of the runs that hosts before this one began; a turn runs for them on return."""
        began = asyncio.Event()
        for call, begun in self._past.open.items():
            self._known[call] = beside(self._taken_up(call, begun, began))
        if self._past.open:
            await began.wait()

    async def once(self, wish: Run, printed: Output, beside: Beside[Ran]) -> Ran:
        """What comes of *wish*, or came of the one with its id. Whoever stops waiting does not stop it."""
        await self._life.arrived.wait()
        while wish.id and (known := self._known.get(wish.id)) is not None:
            if (ran := await asyncio.shield(known)) is not NEVER_RAN:
                return ran
            if self._known.get(wish.id) is known:
                del self._known[wish.id]
        if wish.id in self._ended:
            return await self._told(wish.id)
        if wish.again and self._past.was_replaced(self._box.journal.housing.generation):
            return words.not_known(self._box.journal.housing.lost)
        self._life.must_wake()
        running = beside(self.run(wish, printed, f"{wish.interpreter}: {words.first_line(wish.code)}", "user"))
        if wish.id:
            self._known[wish.id] = running
            while len(self._known) > REMEMBERED and next(iter(self._known.values())).done():
                self._ended[self._known.popitem(last=False)[0]] = None
        return await asyncio.shield(running)

    async def run(self, wish: Run, printed: Output | None, what: str, by: Sender) -> Ran:
        """Run *wish* in a turn; *what* it is, and *by* whom.

        Raises:
            KasmonError: if there is no sandbox to run it in.
        """
        await self._life.arrived.wait()
        async with self._life.turns.run(what, by):
            self._must_have_room(wish.interpreter)
            lost, self._life.lost = self._life.lost, ""
            self.last = wish.interpreter
            variables = environment(self._launch) | await self._credentials()
            call, note = wish.id or secrets.token_hex(8), self._box.journal.note
            code = msgspec.json.encode({"code": wish.code}).decode()
            title = words.first_line(wish.code)
            note(ToolStarted(at=time.time(), call=call, tool=wish.interpreter, title=title, input=code))
            with self._under_way(call, wish.interpreter, printed) as shown:
                ran = await self._tried(wish, call, variables, shown.take)
            await self._mailbox.carry()
            if lost:
                ran = words.after(lost, ran)
            note(words.finished(call, ran))
            return ran

    async def interrupt(self, interpreters: tuple[Interpreter, ...]) -> None:
        """Interrupt what runs in these."""
        turns = self._life.turns
        turns.was_interrupted = turns.is_running
        await asyncio.gather(*(self._threads.call(self._interrupted, name) for name in interpreters))

    async def interrupt_one(self, run: str) -> None:
        """Interrupt the run whose id is *run*, and no other.

        Raises:
            RefusedError: if it is over, or there was none; nothing was done then.
            SandboxError: if it does not react.
        """
        tries, reaction = itertools.count(), Reaction.NOTHING
        while reaction is Reaction.NOTHING and run in self._going and next(tries) < TRIES:  # it may be on its way
            reaction = await self._threads.call(self._interrupted, self._going[run], run)
            if reaction is Reaction.NOTHING:
                await asyncio.sleep(AGAIN_S)
        if reaction is Reaction.NOTHING:
            raise RefusedError(f"nothing was interrupted: run {run!r} is over, or there was none.")
        if reaction is Reaction.NONE:
            raise SandboxError(f"run {run!r} goes on", "its interpreter did not react to the interrupt")
        self._life.turns.was_interrupted = self._life.turns.is_running

    def _must_have_room(self, interpreter: Interpreter) -> None:
        """
        Raises:
            RefusedError: if its files take more than they may. Bash runs all the same, so that some can be removed.
        """
        usage = self._box.journal.housing.usage
        if usage is not None and usage.is_full and interpreter != "bash":
            raise RefusedError(
                f"the disk of sandbox {self._launch.name!r} is full: {usage.disk_bytes // MIB} MiB of"
                f" {usage.disk_allowed // MIB} MiB.",
                hint="Remove files with bash, which still runs.",
            )

    async def _credentials(self) -> dict[str, str]:
        """The values for one command, which nobody writes down."""
        if not self._box.policy.credentials:
            return {}
        looked = await self._threads.work(self._box.credentials)
        self._diary.show(Learned(looked.secrets))
        self._box.journal.tell_once(*looked.missing)
        return looked.values

    async def _tried(self, wish: Run, call: str, variables: Mapping[str, str], take: Output) -> Ran:
        """What came of a run. Where the agent inside was lost there is another sandbox; what never ran, runs there."""
        lost, is_again = "", False
        while True:
            generation = self._box.journal.housing.generation
            try:
                ran = await self._threads.work(self._run, wish, call, variables, take)
            except AgentLostError as error:
                lost = await self._regained(generation, error) or lost
                if is_again or error.may_have_run or self._life.is_ending:
                    return words.not_known(lost)
                is_again = True
                continue
            return msgspec.structs.replace(words.after(lost, ran), restarted=True) if lost else ran

    async def _regained(self, generation: int, error: KasmonError) -> str:
        """Have a sandbox again after *error*; what was lost by that."""
        async with self._life.turns.gate:
            if self._life.is_ending:
                return "the session ended meanwhile"
            return await self._life.moved(self._box.regain, generation, error.message.rstrip("."))

    def _run(self, wish: Run, call: str, variables: Mapping[str, str], take: Output) -> Ran:
        return self._box.run(
            wish.interpreter,
            wish.code,
            timeout_s=wish.timeout_s,
            on_output=take,
            cap=wish.cap,
            run=call,
            variables=variables,
        )

    def _interrupted(self, interpreter: Interpreter, run: str = "") -> Reaction:
        within = self._box.within
        return Reaction.NOTHING if within is None else within.interrupt(interpreter, run)

    @contextlib.contextmanager
    def _under_way(self, call: str, interpreter: Interpreter, printed: Output | None) -> Iterator["Shown"]:
        """It can be interrupted by its id, and is shown, as long as this lasts."""
        self._going[call] = interpreter
        try:
            with Shown(self._diary, printed) as shown:
                yield shown
        finally:
            del self._going[call]

    # What hosts before this one began.

    async def _taken_up(self, call: str, begun: Begun, began: asyncio.Event) -> Ran:
        """What comes or came of a run that a host before this one began; it is noted, and never run again."""
        try:
            async with self._life.turns.run(f"{begun.interpreter}: {begun.title}", "user", self._life.go_on):
                began.set()
                self.last = begun.interpreter
                await self._credentials()
                with self._under_way(call, begun.interpreter, None) as shown:
                    ran = await self._recalled(call, begun.generation, shown.take)
                await self._mailbox.carry()
                self._box.journal.note(words.finished(call, ran))
                return ran
        finally:
            began.set()

    async def _recalled(self, call: str, generation: int, take: Output) -> Ran:
        """The word of the agent inside on a run that was begun in the sandbox of *generation*."""
        housing = self._box.journal.housing
        if housing.generation != generation:
            return words.not_known(housing.lost)
        try:
            ran = await self._threads.work(self._recall, call, take)
        except AgentLostError as error:
            return words.not_known(await self._regained(generation, error))
        return NEVER_RAN if ran is None else msgspec.structs.replace(ran, hint=f"{WENT_ON} {ran.hint}".strip())

    def _recall(self, call: str, take: Output | None) -> Ran | None:
        if (within := self._box.within) is None:
            raise AgentLostError("it is closed", may_have_run=True)
        return within.recall(call, timeout_s=SIZES[self._box.policy.size].time_s, on_output=take)

    async def _told(self, call: str) -> Ran:
        """What came of a run that is over since before this host: by the agent inside where it still has that."""
        with contextlib.suppress(SandboxError):
            if (ran := await self._threads.work(self._recall, call, None)) is not None and ran.turn:
                return ran
        if (finished := self._ended[call]) is None:
            return words.not_known("")
        code = finished.exit_code if finished.exit_code is not None else int(not finished.ok)
        return Ran(stdout=finished.output, exit_code=code, hint=BY_LOG)
