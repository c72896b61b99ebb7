"""Protocols of the guest program's client and of the checkpoint store, as the managed sandbox uses them."""

from collections.abc import Callable, Container, Mapping, Sequence
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

import msgspec

from kasmon.model.sandbox.policy import Interpreter, RunResult, ServiceSpec

When: TypeAlias = Literal["before", "after", "asked"]
Output: TypeAlias = Callable[[str, str], None]
"""Called with `stdout` or `stderr`, and the text written there."""


class InterruptResult(StrEnum):
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    """The interpreter ended."""
    NONE = "no reaction"
    """The run continues."""
    NOTHING = "nothing runs"
    """No run, or another than the requested one: no interrupt was sent."""


class InterpretersState(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the interpreters inside."""

    counters: Mapping[str, int] = {}
    """Interpreter -> number of its runs, over all restarts."""
    busy: Sequence[str] = ()


class SavedInterpreters(msgspec.Struct, frozen=True, kw_only=True):
    """Saved interpreter state: opaque content, and which names were kept and lost."""

    content: bytes = b""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class GuestClient(Protocol):
    """A client of the guest program. All calls may block and raise `SandboxError`."""

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
        """Interrupt the current run of *interpreter*, or only that with the key *run*."""
        ...

    def recall(self, run: str, *, timeout_s: float, on_output: Output | None = ...) -> RunResult | None:
        """Return the result of the run with the key *run*, which is not run by this; None where it is unknown."""
        ...

    def ping(self, nonce: str) -> InterpretersState: ...

    def set_clock(self, at: float) -> float:
        """Set its clock to *at*; return how many seconds it was behind."""
        ...

    def write_volatile(self, path: str, content: bytes, mode: int) -> None: ...

    def listens(self, port: int, limit_s: float) -> bool: ...

    def spawn(self, service: ServiceSpec) -> None: ...

    def forget(self, variables: Sequence[str], values: Sequence[str] = ...) -> Mapping[str, Sequence[str]]:
        """Remove *variables*, and names whose values contain one of *values*; return the removed names of each."""
        ...

    def save_state(self, secrets: Sequence[str] = ...) -> SavedInterpreters:
        """Return what the interpreters hold, without values that contain one of *secrets*."""
        ...

    def prewarm(self, interpreters: Sequence[Interpreter]) -> Mapping[str, str]:
        """Start these now, so that no run waits for a start; return the reason for each that failed."""
        ...

    def load_state(self, content: bytes) -> SavedInterpreters: ...

    def close(self) -> None: ...


class CheckpointPoint(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    commit: str = ""
    size_bytes: int = 0


class CheckpointPoints(Protocol):
    """The checkpoints of one session. All calls may block and raise `SandboxError`."""

    def take(
        self,
        workspace: str,
        turn: int,
        when: When,
        saved: SavedInterpreters,
        /,
        mapped: Callable[[], Container[int]] = ...,
    ) -> CheckpointPoint:
        """Take a checkpoint; *mapped* returns the inodes of files whose times do not show their changes."""
        ...

    def restore(self, checkpoint: str, workspace: str, /) -> object:
        """Replace the files in *workspace* by those of *checkpoint*, completely or not at all."""
        ...

    def finish(self) -> None:
        """Finish a restore that another process began, if there is one."""
        ...

    def fork(self, checkpoint: str, folder: str, /) -> object:
        """Copy the files of *checkpoint* into *folder*."""
        ...

    def purge_memory(self) -> None:
        """Delete all saved interpreter state."""
        ...

    def state(self, checkpoint: str, /) -> bytes:
        """Return the saved interpreter state; empty where none was saved.

        Raises:
            NotFoundError: if there is no such checkpoint.
        """
        ...
