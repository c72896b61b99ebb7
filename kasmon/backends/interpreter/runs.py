"""Code on its way into a sandbox and back: once for each id, as facts of its turn, and with what is kept of it."""

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Self, TypeVar

import msgspec

from kasmon.backends.base import Chunk, Learned
from kasmon.backends.interpreter.diary import Diary
from kasmon.backends.interpreter.life import Life
from kasmon.backends.interpreter.threads import Threads
from kasmon.errors import AgentLostError, KasmonError, RefusedError
from kasmon.model.command import Launch, Run, Sender
from kasmon.model.event import ToolFinished, ToolStarted
from kasmon.model.sandbox import MIB, Interpreter, Ran
from kasmon.model.task import environment
from kasmon.sandbox.box import Box

REMEMBERED: Final = 64
"""What came of so many runs is known, so that the same one asked for again does not run again."""
SHOWN: Final = 64 * 1024
"""So many characters of one run's output are shown while it is written."""
SOON_S, LATE_S = 0.05, 0.25
"""How often that is shown, while there is more and while there is not."""
LOST_AGENT: Final = 137

KEPT: Final = "what its interpreters hold is kept"

Value = TypeVar("Value")
Output = Callable[[str, str], None]
Beside = Callable[[Coroutine[Any, Any, Value]], asyncio.Task[Value]]


class Runs:
    """The runs of one session."""

    def __init__(self, launch: Launch, box: Box, life: Life, diary: Diary, threads: Threads) -> None:
        self.last: Interpreter = "bash"
        """The interpreter that was used last."""
        self._launch = launch
        self._box = box
        self._life = life
        self._diary = diary
        self._threads = threads
        self._known: OrderedDict[str, asyncio.Future[Ran]] = OrderedDict()

    async def once(self, wish: Run, printed: Output, beside: Beside[Ran]) -> Ran:
        """What comes of *wish*, or came of the one with its id. Whoever stops waiting does not stop it."""
        if wish.id and (known := self._known.get(wish.id)) is not None:
            return await asyncio.shield(known)
        self._life.must_wake()
        running = beside(self.run(wish, printed, f"{wish.interpreter}: {_first_line(wish.code)}", "user"))
        if wish.id:
            self._known[wish.id] = running
            while len(self._known) > REMEMBERED and next(iter(self._known.values())).done():
                self._known.popitem(last=False)
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
            title = _first_line(wish.code)
            note(ToolStarted(at=time.time(), call=call, tool=wish.interpreter, title=title, input=code))
            with _Shown(self._diary, printed) as shown:
                ran = await self._tried(wish, call, variables, shown.take)
            if lost:
                ran = _after(lost, ran)
            is_ok = ran.exit_code == 0
            note(ToolFinished(at=time.time(), call=call, ok=is_ok, output=_told(ran), exit_code=ran.exit_code))
            return ran

    async def interrupt(self, interpreters: tuple[Interpreter, ...]) -> None:
        """Interrupt what runs in these."""
        turns = self._life.turns
        turns.was_interrupted = turns.is_running
        await asyncio.gather(*(self._threads.work(self._interrupted, name) for name in interpreters))

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
                    hint = f"It is not known how far this ran, and it was not run again. {_sentence(lost or KEPT)}"
                    is_kept = not lost
                    return Ran(
                        stderr=hint, exit_code=LOST_AGENT, session_preserved=is_kept, restarted=not is_kept, hint=hint
                    )
                is_again = True
                continue
            return msgspec.structs.replace(_after(lost, ran), restarted=True) if lost else ran

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

    def _interrupted(self, interpreter: Interpreter) -> None:
        if (within := self._box.within) is not None:
            within.interrupt(interpreter)


class _Shown:
    """What of one run's output is shown live: all of it to who asked, its beginning to who watches.

    A run that is over at once is not shown live at all: its end tells the same.
    """

    def __init__(self, diary: Diary, printed: Output | None) -> None:
        self._diary = diary
        self._printed = printed
        self._left = SHOWN
        self._lock = threading.Lock()
        self._waiting = ""
        self._pause_s = SOON_S
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(SOON_S, self._show)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, name: str, text: str) -> None:
        """*text* was written to the stream called *name*. From any thread."""
        if self._printed is not None:
            self._printed(name, text)
        with self._lock:
            self._waiting += text[: self._left]
            self._left -= min(self._left, len(text))

    def _show(self) -> None:
        with self._lock:
            text, self._waiting = self._waiting, ""
        if text:
            self._diary.show(Chunk(text=text))
        self._pause_s = SOON_S if text else min(self._pause_s * 2, LATE_S)
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._show) if self._left else None


def _after(lost: str, ran: Ran) -> Ran:
    """*ran*, which says that *lost* was lost before it."""
    return msgspec.structs.replace(ran, session_preserved=False, hint=f"{_sentence(lost)} {ran.hint}".strip())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _first_line(code: str) -> str:
    return next((line.strip() for line in code.splitlines() if line.strip()), "")[:200]


def _told(ran: Ran) -> str:
    """What a run printed, as one text."""
    parts = [ran.stdout, ran.stderr if ran.stderr != ran.hint else "", ran.hint if ran.hint not in ran.stderr else ""]
    return "\n".join(part.rstrip("\n") for part in (*parts, ran.stderr if ran.stderr == ran.hint else "") if part)
