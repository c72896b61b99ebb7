"""One session of interpreters: what it is told, and what comes of that as facts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from kasmon.backends.base import Chunk, Learned
from kasmon.backends.interpreter.described import policy_of
from kasmon.backends.interpreter.diary import Diary
from kasmon.backends.interpreter.life import Life
from kasmon.backends.interpreter.mailbox import Mailbox
from kasmon.backends.interpreter.past import Past
from kasmon.backends.interpreter.room import Room
from kasmon.backends.interpreter.runs import Runs
from kasmon.backends.interpreter.threads import Threads
from kasmon.backends.interpreter.turn import QUIET_S
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model.command import (
    Allow,
    Checkpoint,
    Fork,
    Interrupt,
    Launch,
    Prompt,
    Restore,
    Run,
    SandboxWish,
    Sleep,
    Stop,
    Wake,
    Wish,
)
from kasmon.model.event import Event
from kasmon.model.sandbox import INTERPRETERS, Phase, Policy, Ran
from kasmon.paths import Places
from kasmon.sandbox.box import Box
from kasmon.sandbox.forking import copied
from kasmon.sandbox.keeping import Keeping
from kasmon.sandbox.lifecycle import Terms
from kasmon.sandbox.origin import keep_origin, origin_of

Value = TypeVar("Value")


class InterpreterAgent:
    """Runs code for its session. It acts only while somebody reads its `events`."""

    def __init__(
        self,
        places: Places,
        launch: Launch,
        box: Callable[[Callable[[Event], None]], Box],
        keeping: Callable[[Box], Keeping],
        terms: Terms,
        loop: asyncio.AbstractEventLoop,
        known: Past,
        keep_policy: Callable[[Policy], None] = lambda _: None,
        quiet_s: float = QUIET_S,
    ) -> None:
        """
        Args:
            places: where it is kept.
            launch: its session.
            box: its sandbox, whose facts go to what it is called with.
            keeping: the checkpoints of that.
            terms: how long it is kept.
            loop: where it lives.
            known: what ran there before this host.
            keep_policy: keeps what the sandbox is from now on.
            quiet_s: how long nothing has to run until a turn is over.
        """
        self._places = places
        self._diary, self._threads = Diary(loop), Threads()
        self._box = box(self._diary.write)
        self._keeping = keeping(self._box)
        self._keep_policy = keep_policy
        self._life = Life(launch, self._box, self._keeping, terms, self._diary, self._threads, quiet_s)
        self._mailbox = Mailbox(places, launch, self._box, self._diary, known.until)
        self._runs = Runs(launch, self._box, self._life, self._diary, self._threads, self._mailbox, known)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lives = False

    def events(self) -> AsyncIterator[Event | Chunk | Learned]:
        """Yield what happens, in order. Ends after `SessionEnded`, which comes once."""
        return self._diary.read(self._live_once)

    async def send(self, wish: Wish, /) -> None:
        """Run a prompt in the interpreter that was used last, at first bash; interrupt what runs; end.

        Raises:
            RefusedError: if it sleeps, and is not to be woken by use; or if the run that is to be interrupted is over.
            UnableError: for every other wish.
        """
        match wish:
            case Prompt():
                self._life.must_wake()
                run = Run(interpreter=self._runs.last, code=wish.text)
                self._beside(self._runs.run(run, None, wish.text, wish.by))
            case Interrupt(run=run) if run:
                await self._runs.interrupt_one(run)
            case Interrupt():
                await self._runs.interrupt((wish.interpreter,) if wish.interpreter else INTERPRETERS)
            case Stop():
                self._beside(self._life.end("stopped"))
            case _:
                raise UnableError(f"interpreters take no {type(wish).__name__.lower()}.")

    async def run(self, wish: Run, printed: Callable[[str, str], None], /) -> Ran:
        """Run code, waking the sandbox for it; what came of it. *printed* is called, from a thread, with its output.

        Of two runs of one id the second gets what comes of the first.

        Raises:
            RefusedError: if it sleeps, and is not to be woken by use.
            SandboxError: if there is no sandbox to run it in.
        """
        return await self._runs.once(wish, printed, self._beside)

    async def keep(self, wish: SandboxWish, /) -> str:
        """Put the sandbox to sleep, wake it, keep a checkpoint of it or go back to one, once its turn is over.

        Returns the id of the checkpoint; else what was lost, empty where nothing was. The facts of it were heard then.
        What another session got, to which it was forked, is written to that one's origin.

        Raises:
            KasmonError: why it could not be done.
        """
        await self._life.arrived.wait()
        try:
            if isinstance(wish, Allow):
                async with self._life.turns.gate:
                    return await self._life.moved(self._allow, wish)
            async with self._life.turns.none():
                return await self._life.moved(self._kept, wish)
        finally:
            self._life.stir()
            await self._diary.heard()

    async def aclose(self) -> None:
        """End the sandbox if it is there; idempotent."""
        await self._life.end("closed")

    def _kept(self, wish: SandboxWish) -> str:
        match wish:
            case Sleep():
                why = self._box.sleep(to_disk=wish.to_disk, why="asked for")
                if why or self._box.phase is not Phase.PAUSED:
                    raise SandboxError("the sandbox was not put to sleep", why or "its log says why")
                return ""
            case Wake():
                return self._box.wake()
            case Checkpoint():
                return self._keeping.keep("asked")
            case Restore():
                return self._keeping.restore(wish.checkpoint)
            case Fork():
                return self._forked(wish)
            case _:
                raise UnableError(f"{type(wish).__name__.lower()} is not what is done here.")

    def _forked(self, wish: Fork) -> str:
        """Copy it, and write down what the other session got once that is whole; what this one lost by that."""
        known = origin_of(self._places, wish.session) if wish.session else None
        other = policy_of(self._places, wish.session) if known is not None else None
        got = copied(self._box, self._keeping, wish, other)
        if known is not None:
            whole = msgspec.structs.replace(
                known, is_whole=True, with_memory=not got.why, checkpoint=got.checkpoint, why=got.why
            )
            try:
                keep_origin(self._places, wish.session, whole)
            except OSError as error:  # whoever wanted it took it back meanwhile
                if other is not None:
                    self._box.tier.forget(other)
                raise SandboxError("the copy was not made", error.strerror or str(error)) from error
        return got.lost

    def _allow(self, wish: Allow) -> str:
        later = self._box.allow(wish.hosts)
        self._keep_policy(self._box.policy)
        return later

    def _live_once(self) -> None:
        if not self._lives:
            self._lives = True
            self._beside(self._life.live(lambda: self._runs.take_up(self._beside)))
            self._beside(Room(self._box, self._life, lambda: self._runs.interrupt(INTERPRETERS)).watch())
            self._beside(self._mailbox.live(lambda: self._life.is_ending))

    def _beside(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KasmonError):
            self._life.say_end(f"its backend failed: {error!r}", None)
