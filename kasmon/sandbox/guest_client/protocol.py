"""What whoever keeps a sandbox needs of the agent inside it, and of the place where its checkpoints lie."""

from collections.abc import Callable, Container, Mapping, Sequence
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

import msgspec

from kasmon.model.sandbox.policy import Interpreter, RunResult, ServiceSpec

When: TypeAlias = Literal["before", "after", "asked"]
Output: TypeAlias = Callable[[str, str], None]
"""Called with `stdout` or `stderr`, and what was written there."""


class InterruptResult(StrEnum):
    """What came of an interrupt."""

    INTERRUPTED = "interrupted"
    ENDED = "ended"
    """The interpreter ended by it."""
    NONE = "no reaction"
    """It goes on."""
    NOTHING = "nothing runs"
    """Nothing does, or another run than the one that was meant: nothing was done."""


class InterpretersState(msgspec.Struct, frozen=True, kw_only=True):
    """How the interpreters inside stand."""

    counters: Mapping[str, int] = {}
    """Interpreter -> how many runs it has had, restarts counted through."""
    busy: Sequence[str] = ()


class SavedInterpreters(msgspec.Struct, frozen=True, kw_only=True):
    """What could be kept of the interpreters: opaque, and by name."""

    content: bytes = b""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class GuestClient(Protocol):
    """The agent inside. All calls may block and raise `SandboxError`."""

    def run(
        self,
        interpreter: Interpreter,
        code: str,
        *,
        timeout_s: float,
        variables: Mapping[str, str] = ...,
        on_output: Output | None = ...,
        cap: int | None = ...,
        run: str = ...,
    ) -> RunResult: ...

    def interrupt(self, interpreter: Interpreter, run: str = ...) -> InterruptResult:
        """Interrupt what runs in *interpreter*, or there only the run of this word."""
        ...

    def recall(self, run: str, *, timeout_s: float, on_output: Output | None = ...) -> RunResult | None:
        """What comes or came of the run of this word, which is not run by this; None where it is not known there."""
        ...

    def ping(self, nonce: str) -> InterpretersState: ...

    def set_clock(self, at: float) -> float:
        """Put its clock to *at*; how many seconds it was behind."""
        ...

    def write_volatile(self, path: str, content: bytes, mode: int) -> None: ...

    def listens(self, port: int, limit_s: float) -> bool: ...

    def spawn(self, service: ServiceSpec) -> None: ...

    def forget(self, variables: Sequence[str], values: Sequence[str] = ...) -> Mapping[str, Sequence[str]]:
        """Take *variables* and what holds one of *values* out of the interpreters; the names that went, of each."""
        ...

    def save_state(self, secrets: Sequence[str] = ...) -> SavedInterpreters:
        """What the interpreters hold, but for what holds one of *secrets*."""
        ...

    def prewarm(self, interpreters: Sequence[Interpreter]) -> Mapping[str, str]:
        """Start these now, so that no run waits for that; why not, for each that cannot be."""
        ...

    def load_state(self, content: bytes) -> SavedInterpreters: ...

    def close(self) -> None: ...


class CheckpointPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint, as its store has it."""

    id: str
    commit: str = ""
    size_bytes: int = 0


class CheckpointPoints(Protocol):
    """Where the checkpoints of one session lie. All calls may block and raise `SandboxError`."""

    def take(
        self,
        workspace: str,
        turn: int,
        when: When,
        saved: SavedInterpreters,
        /,
        mapped: Callable[[], Container[int]] = ...,
    ) -> CheckpointPoint:
        """Keep it; *mapped* tells the inodes of files whose times do not tell whether they changed."""
        ...

    def restore(self, checkpoint: str, workspace: str, /) -> object:
        """Put the files of *checkpoint* in the place of those in *workspace*, whole or not at all."""
        ...

    def finish(self) -> None:
        """Bring a restoring to its end that another process began, if there is one."""
        ...

    def fork(self, checkpoint: str, folder: str, /) -> object:
        """Copy *checkpoint* into *folder*: its files, and what was kept of interpreters."""
        ...

    def purge_memory(self) -> None:
        """Forget all that was kept of interpreters."""
        ...

    def state(self, checkpoint: str, /) -> bytes:
        """What was kept of the interpreters; empty where nothing was.

        Raises:
            NotFoundError: if there is no such checkpoint.
        """
        ...
