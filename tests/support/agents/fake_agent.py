"""An agent that the test plays: what it says comes from the test, what it is told lands in a list."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from kasmon.backends.base import Abilities, Agent, Chunk, SecretsLearned
from kasmon.model.commands import AgentCommand, Answer, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import Event, RequestOpened, SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.model.permission import Decision, Request, RequestId, SessionId

ABLE = Abilities(streams=True, asks=True, edits_input=True, steers=True, resumes=True, interrupts=True)

STANDARD = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.EDIT)


class FakeAgent:
    """Behaves like a plain agent (a turn per prompt) until the test says otherwise; also its own backend."""

    name = "fake"
    abilities = ABLE

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self.told: list[AgentCommand] = []
        self.closed = 0
        self.knows_its_end = True
        """Its events end after `SessionEnded`, as they should."""
        self.on_open: Callable[[], Awaitable[None]] | None = None
        """What opening does before it succeeds."""
        self.on_wish: Callable[[AgentCommand], Awaitable[None]] | None = None
        """What a wish does, instead of what a plain agent does."""
        self._says: asyncio.Queue[Event | Chunk | SecretsLearned | Exception | None] = asyncio.Queue()

    async def open(self, launch: Launch, /) -> Agent:
        self.launch = launch
        if self.on_open is not None:
            await self.on_open()
        early = [self._says.get_nowait() for _ in range(self._says.qsize())]
        self.say(SessionStarted(at=time.time(), pid=None, resume_id="talk-1"))
        for item in early:  # a test that was quick: no agent says anything before it is there
            self._says.put_nowait(item)
        return self

    def say(self, *items: Event | Chunk | SecretsLearned) -> None:
        for item in items:
            self._says.put_nowait(item)

    def break_down(self, error: Exception) -> None:
        """Let its backend fail."""
        self._says.put_nowait(error)

    def hang_up(self) -> None:
        """End its events without a word."""
        self._says.put_nowait(None)

    async def events(self) -> AsyncIterator[Event | Chunk | SecretsLearned]:
        while True:
            item = await self._says.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
            await asyncio.sleep(0)
            if isinstance(item, SessionEnded) and self.knows_its_end:
                return

    async def send(self, command: AgentCommand, /) -> None:
        self.told.append(command)
        if self.on_wish is not None:
            await self.on_wish(command)
        else:
            self.obey(command)

    def obey(self, command: AgentCommand) -> None:
        """What a plain agent does."""
        now = time.time()
        match command:
            case Prompt():
                self.say(TurnStarted(at=now, prompt=command.text, by=command.by))
            case Interrupt():
                self.say(TurnEnded(at=now, reason="interrupted"))
            case Stop():
                self.say(SessionEnded(at=now, exit_code=0))
            case Answer():
                pass

    async def aclose(self) -> None:
        self.closed += 1
        self.say(SessionEnded(at=time.time(), signal="SIGKILL"))

    @property
    def waiting(self) -> int:
        """How much it said that its host has not heard yet."""
        return self._says.qsize()

    @property
    def prompts(self) -> list[str]:
        return [command.text for command in self.told if isinstance(command, Prompt)]


def asked(command: str = "rm -r build", id: str = "tool-7", **more: Any) -> RequestOpened:  # noqa: A002 - a request's own word
    fields = {
        "tool": "Bash",
        "title": command,
        "input": {"command": command},
        "shown": command,
        "choices": STANDARD,
    } | more
    return RequestOpened(at=time.time(), request=Request(id=RequestId(id), session=SessionId(""), **fields))
