"""One agent in a pane: what it is heard to do, what is typed into it, and how it ends."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from kasmon.backends.base import Chunk
from kasmon.backends.tmux.ending import DIE_S, SCROLLED_BY_DEATH, end_group, last_line, signal_name
from kasmon.backends.tmux.hearing import Hearing
from kasmon.backends.tmux.line import Line, Listener
from kasmon.backends.tmux.typist import Typist
from kasmon.backends.tmux.witness import Witness
from kasmon.clean import outgoing
from kasmon.errors import (
    KasmonError,
    PaneDeadError,
    SessionBusyError,
    SessionEndedError,
    TimedOutError,
    UnableError,
    UsageError,
)
from kasmon.model.command import Answer, Configure, Interrupt, Launch, Mode, Prompt, Stop, Wish
from kasmon.model.event import Event, LineLost, SessionEnded, SessionStarted, SignalSeen
from kasmon.model.state import SessionState
from kasmon.screens.reading import Reading
from kasmon.tmux import request as ask
from kasmon.tmux.facts import Pane, PaneFacts
from kasmon.tmux.identity import Process
from kasmon.tmux.request import Lines

YOUNG_S: Final = 1.0
"""An agent that fails so soon after its start is said to have ended at once."""
CLOSE_GRACE_S: Final = 2.0
CTRL_C, ESCAPE = b"\x03", b"\x1b"
STOPPED_BY_ESCAPE: Final = frozenset({"claude", "codex", "gemini", "opencode", "amp", "scripted"})
"""Agents that end a turn at Escape; Ctrl+C would end some of them whole."""


class TmuxAgent(Listener):
    """The agent that *launch* describes, in *pane*; it listens from the moment it is made."""

    def __init__(
        self,
        launch: Launch,
        line: Line,
        pane: Pane | PaneFacts,
        process: Process | None,
        hearing: Hearing,
        witness: Callable[[Callable[[Event], None]], Witness],
    ) -> None:
        """*witness* makes what weighs all that is known of it, told what to call with a fact."""
        self.pane = pane.pane_id
        self.window = pane.window_id
        self.pid = pane.pid
        self.typist = Typist(line, pane.pane_id, launch.session)
        self.typist.on_typed = lambda: self._hearing.typed(self._loop.time())
        self._launch = launch
        self._line = line
        self._process = process
        """The agent's own, which leads a process group; None if it was gone when somebody looked."""
        self._hearing = hearing
        self._loop = asyncio.get_running_loop()
        self._is_old_at = -math.inf
        """Before this moment it has only begun; infinity until it was ready."""
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._is_ending = False
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None
        self._is_looking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.witness = witness(self.say)
        """What weighs all that is known of it."""
        line.listen(self.pane, self)
        self._arm()

    # -- the agent's face

    async def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield what happens, in order. Ends after `SessionEnded` or `LineLost`, or once it was let go."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)

    async def send(self, wish: Wish, /) -> None:
        """Carry *wish* to the agent: a prompt is pasted, then Enter; an interrupt is a key; a stop is signals.

        Raises:
            SessionEndedError: if it has ended.
            UsageError: for a prompt of which nothing is left when it is cleaned.
            SessionBusyError: if it asks something, which the prompt's Enter would answer; or if a person types on.
            PaneDeadError, PasteRefusedError: if the pane takes nothing now.
            TimedOutError: if the text stands there, and Enter was not taken.
            UnableError: for an answer: what is asked on a terminal is answered there.
        """
        if self.has_ended:
            raise SessionEndedError(self._launch.session)
        match wish:
            case Prompt():
                await self._prompt(wish.text)
            case Interrupt():
                await self.typist.press(interrupt_key(self._launch))
            case Stop() if self._launch.adopted is not None:
                raise not_ended(self._launch)
            case Stop():
                self._stop("stopped", wish.grace_s)
            case Answer():
                raise UnableError(
                    f"what {self._launch.name!r} asks on its terminal cannot be answered from here.",
                    hint="Focus the session and answer there.",
                )
            case Configure():
                raise UnableError(
                    f"how {self._launch.name!r} runs cannot be changed from here.",
                    hint="Focus the session and change it there.",
                )

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent, 10 s at most. One of the user's own is only let go."""
        if not self.has_ended and self._launch.adopted is None:
            self._stop("closed", CLOSE_GRACE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S + DIE_S + 1):
                    await self._ended.wait()
            self._end(SessionEnded(at=time.time(), why="closed"))
        self.let_go()

    # -- more than every backend has

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def has_word(self) -> bool:
        """Whether anybody can tell what it does: the program itself, or what watches it."""
        return self._hearing.has_word or self.witness.can_tell

    @property
    def printed_at(self) -> float:
        """When it printed last, by the loop's clock; minus infinity before that."""
        return self._hearing.printed_at

    async def look_now(self) -> Reading:
        """What its screen says, from a look that is taken now.

        Raises:
            TmuxError: if it cannot be looked at.
        """
        return await self.witness.look_now()

    def let_go(self) -> None:
        """Hear it no more, and leave it as it is. Idempotent."""
        self._line.unlisten(self.pane, self)
        self.witness.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._events.put_nowait(None)

    def give_up(self) -> None:
        """Its session is over, though it may run on: it was the user's own, and nobody watches it any more."""
        self._end(SessionEnded(at=time.time(), why="stopped"))

    def lost(self, why: str) -> None:
        """The tmux server is gone."""
        self._end(LineLost(at=time.time(), what="tmux server", why=why))

    def started(self, generation: int) -> SessionStarted:
        """The fact that it runs, as of now."""
        launch = self._launch
        self._is_old_at = math.inf
        return SessionStarted(
            at=time.time(),
            generation=generation,
            backend=launch.backend,
            mode=Mode.TMUX,
            workdir=launch.workdir,
            pid=self.pid,
            model=launch.model,
        )

    def ready(self) -> None:
        """It announced that it becomes its program now."""
        self._is_old_at = self._loop.time() + YOUNG_S
        self.say(SignalSeen(at=time.time(), source="launch", value="ready"))
        self.witness.begin()

    def found(self, facts: PaneFacts) -> None:
        """Take *facts*, looked up by somebody else, for its death, if they say how it died."""
        if facts.is_dead and (facts.status is not None or facts.signal is not None):
            self.died(facts.status, facts.signal)

    def say(self, event: Event) -> None:
        """Have *event* among its events, now."""
        if not self.has_ended:
            self._events.put_nowait(event)
            if isinstance(event, SignalSeen):
                self.witness.noted(event)

    # -- what the pane does

    def printed(self, data: bytes) -> None:
        now, at = self._loop.time(), time.time()
        self.witness.printed(data)
        self._tell(self._hearing.heard(data, now, at) if data else self._hearing.skipped(now, at))

    def flooded(self, is_off: bool) -> None:
        self.witness.flooded(is_off)
        self._tell(self._hearing.flooded(is_off, self._loop.time(), time.time()))

    def died(self, status: int | None, number: int | None) -> None:
        if not self.has_ended and not self._is_ending:
            self._is_ending = True
            self._spawn(self._bury(status, number))

    def closed(self) -> None:
        self._end(SessionEnded(at=time.time(), why=self._why or "its pane is gone"))

    def _tell(self, signals: list[SignalSeen]) -> None:
        for event in signals:
            self.say(event)
        self._arm()

    def _arm(self) -> None:
        """Be called when silence means something; a timer that is set already sets the next one itself."""
        next_at = self._hearing.next_at()
        if self._timer is not None and self._timer.when() > next_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and next_at < math.inf and not self.has_ended:
            self._timer = self._loop.call_at(next_at, self._due)

    def _due(self) -> None:
        self._timer = None
        signals, wants_line = self._hearing.due(self._loop.time(), time.time())
        if not wants_line:
            self._tell(signals)
        elif not self._is_looking:
            self._is_looking = True
            self._line.submit(ask.capture(self.pane, ansi=False), self._looked)

    def _looked(self, rows: Lines | KasmonError) -> None:
        self._is_looking = False
        if self.has_ended or isinstance(rows, KasmonError):
            return
        self._tell(self._hearing.shown(last_line(rows), self._loop.time(), time.time()))

    async def _bury(self, status: int | None, number: int | None) -> None:
        line = ""
        with contextlib.suppress(KasmonError):
            line = last_line(await self._line.ask(ask.capture(self.pane, start=SCROLLED_BY_DEATH, ansi=False)))
        why = self._why
        if not why and status and self._loop.time() < self._is_old_at:
            why = f"it ended at once: {line.removeprefix('kasmon: ')}" if line else "it ended at once"
        elif not why and status is None and number is None:
            why = "it ended, and tmux does not know how"
        for event in self._hearing.shown(line, self._loop.time(), time.time()):
            self.say(event)
        self._end(SessionEnded(at=time.time(), exit_code=status, signal=signal_name(number), why=why))

    def _end(self, event: Event) -> None:
        if self.has_ended:
            return
        self.say(event)
        self._ended.set()
        self._events.put_nowait(None)
        self.witness.close()
        if self._timer is not None:
            self._timer.cancel()
        self._line.unlisten(self.pane, self)

    # -- what is done to it

    async def _prompt(self, text: str) -> None:
        if not outgoing(text).strip():
            raise UsageError("a prompt needs text.")
        if self._hearing.is_asking or self.witness.verdict.state is SessionState.ASKING:
            raise SessionBusyError(self._launch.name or self._launch.session, "asking")
        typed: list[bool] = []
        try:
            await self.typist.prompt(text, lambda: typed.append(True))
        except KasmonError as error:
            if not typed or isinstance(error, PaneDeadError):
                raise
            raise TimedOutError(f"the text stands there, but Enter was not taken: {error.message}") from error

    def _stop(self, why: str, grace_s: float) -> None:
        self._why = self._why or why
        self._spawn(end_group(self._process, grace_s, self._ended))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def not_ended(launch: Launch) -> UnableError:
    return UnableError(
        f"{launch.name!r} runs in your own tmux, and kasmon does not end it.",
        hint=f"End it there, or let go of it: `kasmon rm {launch.session}`.",
    )


def interrupt_key(launch: Launch) -> bytes:
    """The key that ends the agent's turn: what its launch says, else what agents of this name take."""
    named = {"ctrl-c": CTRL_C, "escape": ESCAPE}
    return named.get(launch.interrupt_key) or (ESCAPE if launch.agent in STOPPED_BY_ESCAPE else CTRL_C)
