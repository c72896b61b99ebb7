"""What every way of talking to an agent promises: `Backend` opens an `Agent`, which yields facts and takes wishes."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, runtime_checkable

import msgspec

from kasmon.model.commands import Launch, Run, SandboxWish, Wish
from kasmon.model.events import Event
from kasmon.model.sandbox.policy import RunResult


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent of this backend can do; the screen hides the rest."""

    attaches: bool = False
    """A person can sit down at its terminal."""
    streams: bool = False
    """It shows text while it is being written."""
    asks: bool = False
    """Its requests can be answered by kasmon."""
    edits_input: bool = False
    """An answer can carry a changed input."""
    cancels: bool = False
    """An answer can deny and end the turn at once."""
    hears_reasons: bool = False
    """Why a person denies something reaches it."""
    steers: bool = False
    """A prompt can go into the running turn."""
    sets_model: bool = False
    """The model can be changed while it runs."""
    sets_permission_mode: bool = False
    """How much it asks can be changed while it runs."""
    resumes: bool = False
    """The same conversation goes on after its process died."""
    interrupts: bool = False
    continues: bool = False
    """It runs in a terminal, where Ctrl-Z can stop it, and can be continued."""
    runs_code: bool = False
    """It runs code in a sandbox of its own, which sleeps and comes back: its agent is `SandboxedAgentControl`."""
    shares_host: bool = False
    """All sessions of this backend live in one host process."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Text as it is being written, shown at once and logged in parts. The whole message comes as an event."""

    text: str
    thinking: bool = False


class SecretsLearned(msgspec.Struct, frozen=True):
    """What must not be written down from now on, wherever it stands."""

    secrets: tuple[str, ...]


class Agent(Protocol):
    """One live agent."""

    def events(self) -> AsyncIterator[Event | Chunk | SecretsLearned]:
        """Yield what happens, in order. Ends after `SessionEnded`.

        Whoever asks for the next has written down the one before; one that `housing.must_be_on_disk`, on the disk.
        """
        ...

    async def send(self, wish: Wish, /) -> None:
        """Carry *wish* to the agent; what comes of it comes as events.

        Raises:
            RefusedError: if the agent does not take it; nothing happened then.
        """
        ...

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent, and bounded by the implementer (10 s at most)."""
        ...


@runtime_checkable
class SandboxedAgentControl(Protocol):
    """What an agent that runs code in a sandbox of its own does besides."""

    async def run(self, wish: Run, printed: Callable[[str, str], None], /) -> RunResult:
        """Run code, and wait for what comes of it. *printed* is called with `stdout` or `stderr`, and what was written
        there, from any thread.

        Raises:
            RefusedError: if it sleeps, and is not to be woken by use.
            SandboxError: if there is no sandbox to run it in.
        """
        ...

    async def keep(self, wish: SandboxWish, /) -> str:
        """Put the sandbox to sleep, wake it, keep a checkpoint or go back to one, once its turn is over.

        Returns the checkpoint's id; else what was lost, empty where nothing was.

        Raises:
            KasmonError: why it could not be done.
        """
        ...


class Backend(Protocol):
    """One way of talking to agents."""

    name: str
    abilities: Abilities

    async def open(self, launch: Launch, /) -> Agent:
        """Start the agent that *launch* describes, or go on with it where `launch.resume` names a conversation.

        Raises:
            LaunchError: if it cannot be started.
        """
        ...
