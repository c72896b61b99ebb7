"""One session of one actor, and how to wait for what it does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import psutil

from kasmon import ExecutionSession
from kasmon.model.commands import Mode
from kasmon.model.permission import Decision
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths

Value = TypeVar("Value")
LIMIT_S: Final = 100.0
NAME: Final = "a b:c.d;kill-server #{pane_id}"
LAUNCH: Final[dict[str, Any]] = {"name": NAME, "task": 3, "wave": 2, "peers": 4, "plan": "p1"}
KEPT: Final = {"KEPT": "x y"}
TITLE: Final = "by function"
INTERRUPT: Final = "\x03"
WAITS: Final = SessionState.IDLE


class Actor(Protocol):
    """Who acts in a session, and the words by which it does what a row wants to see."""

    kind: str
    """`sdk`, `tmux` (an agent in a terminal), or `program`."""
    label: str
    """The agent's type, in front of its window's title."""
    begins: str
    """The prompt that it is started with; none where it takes none."""
    paths: Paths
    workdir: Path
    variables: Mapping[str, str]
    """The environment of another process that finds the same kasmon."""

    def session(self, **more: Any) -> ExecutionSession:
        """A session that is not started, of the spec LAUNCH and *more*."""

    def says(self, word: str) -> str:
        """A prompt for which it says *word*."""

    def hangs(self, word: str) -> str:
        """A prompt for which it says *word* and never ends its turn."""

    def asks(self, word: str, *, hangs: bool = True) -> str:
        """A prompt for which it asks whether it may do *word*, does it when it may, and then *hangs* or is done."""

    def did(self, word: str, shown: str) -> bool:
        """Whether it has done *word*; *shown* is all that its session shows."""

    def runs(self, process: psutil.Process) -> bool:
        """Whether *process* is its own, and works in `workdir`."""

    async def crash(self, one: ExecutionSession) -> None:
        """Make it end by itself."""

    def forgets(self) -> bool:
        """Lose its conversation, where it has one outside of its process; it does not run."""

    def remembers(self, before: str, now: str) -> bool:
        """Whether it was given the prompt *now* in a conversation that holds *before*."""


@dataclass
class ActorSession:
    actor: Actor
    one: ExecutionSession
    titles: list[str] = field(default_factory=list)
    """One entry for each time that its title was asked for."""

    @property
    def is_sdk(self) -> bool:
        return self.actor.kind == "sdk"

    async def say(self, word: str) -> None:
        """Have it say *word*, and wait until it did and waits again."""
        await say(self.one, self.actor.says(word))
        await self.said(word)
        await self.waits()

    async def said(self, word: str) -> str:
        """Wait until it said *word*, which the prompt holds, too; all that is shown then."""

        async def shown() -> str:
            whole = await self.one.capture_range()
            return whole if whole.count(word) > 1 else ""

        return await noted(self.one, eventually(shown, f"{word!r}, said"))

    async def hang(self, word: str) -> None:
        """Have it say *word* and not come to an end."""
        await say(self.one, self.actor.hangs(word))
        await until_state(self.one, SessionState.WORKING)
        if not self.is_sdk:  # interrupted before it has said anything, some agents accept the prompt back
            await self.said(word)

    async def waits(self) -> None:
        if self.actor.kind != "program":
            await until_state(self.one, WAITS)

    async def interrupt(self) -> None:
        await self.one.send_keys(INTERRUPT)
        await self.waits()


@asynccontextmanager
async def staged(actor: Actor) -> AsyncIterator[ActorSession]:
    """A session that was started just now."""
    titles: list[str] = []

    def title() -> str:
        titles.append("asked")
        return TITLE

    stage = ActorSession(actor, actor.session(prompt=actor.begins, title=title), titles)
    await stage.one.start(actor.workdir)
    try:
        yield stage
    finally:
        await stage.one.close()


async def eventually(look: Callable[[], Awaitable[Value]], what: str) -> Value:
    """What *look* sees, once that is true."""
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not (seen := await look()):
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.02)
    return seen


async def shows(one: ExecutionSession, text: str) -> str:
    """Wait until *text* is shown; all that is shown then."""

    async def shown() -> str:
        whole = await one.capture_range()
        return whole if text in whole else ""

    return await eventually(shown, repr(text))


async def asks(one: ExecutionSession) -> None:
    """Wait until it asks something."""

    async def asking() -> bool:
        return await asked(one) is not None

    await eventually(asking, "a permission")


async def asked(one: ExecutionSession) -> tuple[str, frozenset[Decision]] | None:
    """By which name what it asks is answered, and how; None where it asks nothing."""
    state = await one.state()
    if state.mode is Mode.TMUX:
        menu = await one.on_screen()
        return (menu.digest, frozenset(menu.keys)) if menu else None
    return (state.requests[0].id, frozenset(state.requests[0].choices)) if state.requests else None


async def until_state(one: ExecutionSession, state: SessionState) -> None:
    async def there() -> bool:
        return (await one.state()).state is state

    await noted(one, eventually(there, f"the state {state}"))


async def noted(one: ExecutionSession, waiting: Awaitable[Value]) -> Value:
    """What comes of *waiting*; where that fails, the error tells how *one* stands."""
    try:
        return await waiting
    except AssertionError as error:
        now = await one.state()
        error.add_note(f"it is {now.state} ({now.unsure_why}); it shows\n{await one.capture_range('-30', '')}")
        raise


async def until_gone(one: ExecutionSession) -> None:
    async def gone() -> bool:
        return not await one.exists()

    await eventually(gone, "the agent's end")


async def say(one: ExecutionSession, text: str) -> None:
    await one.send_keys(text)
    await one.tap_enter()
