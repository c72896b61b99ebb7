"""A scripted agent with every ability, played inside its host's process: for tests, the demo and screenshots.

`kasmon.scripted_agent.script` decides what the agent does; this module only supplies the clock. The first prompt
arrives by `send`, like every other; `launch.prompt` only determines how long the agent takes to start.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.base import Abilities, Agent, Chunk
from kasmon.model.commands import AgentCommand, Answer, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import Event, SessionEnded, SessionStarted
from kasmon.scripted_agent.agent import Actor
from kasmon.scripted_agent.player import ScriptPause, SpokenText
from kasmon.scripted_agent.script import boot_s


class ScriptedAgent:
    """One scripted agent. It acts only while its `events` are being read."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._actor = Actor(launch)
        self._woken = asyncio.Event()
        self._is_started = self._is_ended = False

    async def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        if not self._is_started:
            self._is_started = True
            await self._boot()
            if not self._actor.ended:
                yield self._started()
        while not self._is_ended:
            match self._actor.advance(time.time()):
                case None:
                    await self._wait(None)
                case ScriptPause(seconds=seconds):
                    await self._wait(seconds)
                case SpokenText(text=text, thinking=thinking):
                    yield Chunk(text=text, thinking=thinking)
                case event:
                    self._is_ended = isinstance(event, SessionEnded)
                    yield event
            await asyncio.sleep(0)  # a long script without pauses would starve other tasks

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to the agent. Raises as `Actor.prompt` and `Actor.answer`."""
        now = time.time()
        match command:
            case Prompt():
                self._actor.prompt(command, now)
            case Answer():
                self._actor.answer(command)
            case Interrupt():
                self._actor.interrupt(now)
            case Stop():
                self._actor.end(now, "stopped")
        self._woken.set()

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent."""
        self._actor.end(time.time(), "closed")
        self._woken.set()

    async def _boot(self) -> None:
        """Wait for the startup time of the launch's script, or until the agent is ended."""
        speed = self._launch.speed
        until = time.monotonic() + (boot_s(self._launch.prompt) / speed if speed > 0 else 0.0)
        while not self._actor.ended and (left := until - time.monotonic()) > 0:
            await self._wait(left)

    async def _wait(self, limit_s: float | None) -> None:
        self._woken.clear()
        await wait_within(limit_s, self._woken)

    def _started(self) -> SessionStarted:
        launch, pid = self._launch, os.getpid()
        return SessionStarted(
            at=time.time(),
            generation=launch.generation,
            backend=launch.backend,
            mode=launch.mode,
            workdir=launch.workdir,
            pid=pid,
            host_pid=pid,
            resume_id=launch.resume or f"script-{launch.session}",
            model=launch.model or "scripted",
        )


class ScriptedBackend:
    """Opens scripted agents; needs nothing but `launch.session`, `seed` and `speed`."""

    name = "scripted"
    abilities = Abilities(
        streams=True,
        asks=True,
        edits_input=True,
        receives_reasons=True,
        steers=True,
        resumes=True,
        interrupts=True,
    )

    async def open(self, launch: Launch, /) -> Agent:
        """Return a new agent; with `launch.resume` it keeps the conversation's id. Never fails."""
        return ScriptedAgent(launch)


backend = ScriptedBackend()
