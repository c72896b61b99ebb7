"""What the agent inside says, as shapes: whatever is of another shape is refused where it comes in."""

from collections.abc import Mapping

import msgspec

from kasmon.model.sandbox.policy import RunResult
from kasmon.sandbox.guest_client.protocol import InterpretersState


class InterpreterStatus(msgspec.Struct, frozen=True):
    """How one interpreter stands."""

    pid: int = 0
    """0: it does not run; it is started at its next turn."""
    starts: int = 0
    turns: int = 0
    busy: bool = False
    queued: int = 0


class ServiceStatus(msgspec.Struct, frozen=True):
    """How a service stands."""

    pid: int = 0
    ended: str = ""
    """How, where it has."""
    said: str = ""
    """The beginning and the end of it, stdout and stderr in one."""


class GuestStatus(InterpretersState, frozen=True, kw_only=True):
    """Who answers, and how it stands."""

    instance: str
    protocol: int
    pid: int
    """As the sandbox counts."""
    up_s: float
    now: float
    """Its clock."""
    workers: Mapping[str, InterpreterStatus]
    services: Mapping[str, ServiceStatus]


class Pong(msgspec.Struct, frozen=True):
    """How the agent stands, as it says itself."""

    nonce: str
    instance: str
    protocol: int
    pid: int
    up_s: float
    now: float
    workers: dict[str, InterpreterStatus]
    services: dict[str, ServiceStatus]


class ConfinementReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent inside finds of where it is; empty what the kernel in there does not say."""

    type: str = "answer"
    kernel: str = ""
    """Its release and version."""
    boot: str = ""
    """The id of its boot."""
    devices: tuple[str, ...] = ()
    """Its network devices, by name."""
    user: int = 0
    capabilities: str = ""
    """Hexadecimal."""


class InterpreterReply(msgspec.Struct, frozen=True):
    """What one interpreter says."""

    kept: tuple[str, ...] = ()
    lost: dict[str, str] | str = {}
    """Name -> why; a text, where it is all of it."""
    purged: tuple[str, ...] = ()


class GuestReply(msgspec.Struct, frozen=True):
    """The answer to anything but a run, a ping or a look; what a request has no use for is empty."""

    type: str = ""
    stderr: str = ""
    data: str = ""
    state: str = ""
    drift_s: float = 0.0
    listening: bool = False
    interpreters: dict[str, InterpreterReply] = {}


class RunReply(RunResult, frozen=True, kw_only=True):
    """What comes of a run: pieces of its output, and at last what came of it."""

    type: str = ""
    name: str = ""
    data: str = ""
