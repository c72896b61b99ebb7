"""Values and messages of the guest program's client; a message of another shape is refused on receipt."""

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from kasmon.model.sandbox.policy import RunResult

CheckpointTime: TypeAlias = Literal["before", "after", "asked"]
Output: TypeAlias = Callable[[str, str], None]
"""Called with `stdout` or `stderr`, and the text written there."""


class InterruptResult(StrEnum):
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    NONE = "no reaction"
    """The run continues."""
    NOTHING = "nothing runs"
    """No run, or another than the requested one: no interrupt was sent."""


class SavedInterpreters(msgspec.Struct, frozen=True, kw_only=True):
    """Saved interpreter state: opaque content, and which names were kept and lost."""

    content: bytes = b""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class InterpreterStatus(msgspec.Struct, frozen=True):
    pid: int = 0
    """0: not running; it is started at its next turn."""
    starts: int = 0
    turns: int = 0
    busy: bool = False
    queued: int = 0


class ServiceStatus(msgspec.Struct, frozen=True):
    pid: int = 0
    ended: str = ""
    """How it ended; empty while it runs."""
    said: str = ""
    """The start and the end of its output, stdout and stderr together."""


class GuestStatus(msgspec.Struct, frozen=True):
    """Identity and status of the guest program."""

    nonce: str
    instance: str
    protocol: int
    pid: int
    """In the sandbox's PID namespace."""
    up_s: float
    now: float
    """Its clock."""
    workers: dict[str, InterpreterStatus]
    services: dict[str, ServiceStatus]

    @property
    def counters(self) -> dict[str, int]:
        """Interpreter -> number of its runs, over all restarts."""
        return {name: worker.turns for name, worker in self.workers.items()}

    @property
    def busy(self) -> tuple[str, ...]:
        return tuple(name for name, worker in self.workers.items() if worker.busy)


class ConfinementReport(msgspec.Struct, frozen=True, kw_only=True):
    """The guest program's report of its confinement; a field is empty where the kernel inside does not provide it."""

    type: str = "answer"
    kernel: str = ""
    boot: str = ""
    devices: tuple[str, ...] = ()
    """Its network devices, by name."""
    user: int = 0
    capabilities: str = ""
    """Hexadecimal."""


class InterpreterReply(msgspec.Struct, frozen=True):
    """One interpreter's part of an answer."""

    kept: tuple[str, ...] = ()
    lost: dict[str, str] | str = {}
    """Name -> why; a text, where everything is lost."""
    purged: tuple[str, ...] = ()


class GuestReply(msgspec.Struct, frozen=True):
    """The answer to requests other than a run, a ping or a confinement report; unused fields are empty."""

    type: str = ""
    stderr: str = ""
    data: str = ""
    state: str = ""
    drift_s: float = 0.0
    listening: bool = False
    interpreters: dict[str, InterpreterReply] = {}


class RunReply(RunResult, frozen=True, kw_only=True):
    """Messages about a run: pieces of its output, and finally its result."""

    type: str = ""
    name: str = ""
    data: str = ""
