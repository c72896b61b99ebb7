"""The interface of every backend: a `Backend` opens an `Agent`, which yields events and accepts commands."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from kasmon.model.commands import AgentCommand, Launch, Run, SandboxCommand
from kasmon.model.events import Event
from kasmon.model.sandbox.policy import RunResult


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent of this backend supports; the dashboard hides the rest."""

    attaches: bool = False
    """The user can attach to its terminal, or to its own screen on the same conversation."""
    streams: bool = False
    """It reports text while the text is being written."""
    asks: bool = False
    """Its requests can be answered by kasmon."""
    edits_input: bool = False
    """An answer can carry a changed input."""
    cancels: bool = False
    """An answer can deny a request and end the turn at once."""
    receives_reasons: bool = False
    """The agent receives the reason that the user gives for a denial."""
    receives_images: bool = False
    """A prompt can have pictures."""
    steers: bool = False
    """A prompt can be added to the running turn."""
    sets_model: bool = False
    """The model can be changed while the agent runs."""
    sets_permission_mode: bool = False
    """The permission mode can be changed while the agent runs."""
    resumes: bool = False
    """A new process can resume the conversation of one that ended."""
    interrupts: bool = False
    forks: bool = False
    """A new session can begin with a copy of its whole conversation. With ACP, each agent says so itself."""
    deletes: bool = False
    """It can delete a conversation that it stores. With ACP, each agent says so itself."""
    continues: bool = False
    """It runs in a terminal, where Ctrl-Z can stop it, and it can be continued."""
    runs_code: bool = False
    """It runs code in a sandbox that can be paused and resumed: its agent is a `SandboxedAgentControl`."""
    shares_host: bool = False
    """All sessions of this backend live in one host process."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Text as it is being written, shown at once and logged in parts. The whole message follows as an event."""

    text: str
    thinking: bool = False


AgentOutput: TypeAlias = Event | Chunk


class SecretsLearned(msgspec.Struct, frozen=True):
    """Values that must be redacted from now on in everything that is logged."""

    secrets: tuple[str, ...]


class Agent(Protocol):
    def events(self) -> AsyncIterator[Event | Chunk | SecretsLearned]:
        """Yield what happens, in order. Ends after `SessionEnded`.

        The reader asks for the next item only after logging the one before; an event for which
        `sandbox_state.must_be_on_disk` holds is on disk by then.
        """

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to the agent; its effects arrive as events.

        Raises:
            RefusedError: if the agent rejects it; it has had no effect then.
        """

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent. Each backend bounds it (10 s at most)."""


@runtime_checkable
class SandboxedAgentControl(Protocol):
    """Additional operations of an agent that runs code in its own sandbox."""

    async def run(self, command: Run, printed: Callable[[str, str], None], /) -> RunResult:
        """Run code and return its result. *printed* gets the stream (`stdout`, `stderr`) and its text, from any thread.

        Raises:
            RefusedError: if the sandbox is paused and must not be resumed on use.
            SandboxError: if there is no sandbox to run it in.
        """

    async def change_sandbox(self, command: SandboxCommand, /) -> str:
        """Pause or resume the sandbox, create a checkpoint or restore one, once its turn is over.

        Returns the checkpoint's id, or else a description of what was lost; empty if nothing was.

        Raises:
            KasmonError: if it could not be done; the message gives the reason.
        """


class Backend(Protocol):
    """A protocol by which kasmon talks to agents."""

    name: str
    abilities: Abilities

    async def open(self, launch: Launch, /) -> Agent:
        """Start the agent that *launch* describes; resume the conversation in `launch.resume` if it names one.

        Raises:
            LaunchError: if it cannot be started.
        """
