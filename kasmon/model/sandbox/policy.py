"""What a sandbox is as a value: its tier, size and policy, where it lives, in which phase it is, and what ran in it."""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.model.permission import SessionId

Tier: TypeAlias = Literal["jail", "microvm", "e2b"]
LoggedTier: TypeAlias = Literal[Tier, "gvisor"]
"""A tier as files name it: earlier versions also wrote `gvisor`, and their files are still read."""
Interpreter: TypeAlias = Literal["python", "bash", "node"]
INTERPRETERS: Final[tuple[Interpreter, ...]] = ("python", "bash", "node")
MIB: Final = 1024 * 1024
REMEMBERING: Final[frozenset[Tier]] = frozenset({"microvm", "e2b"})
"""Tiers whose sandboxes can sleep without a process: their memory is on disk, or at the service."""
COPYING: Final[frozenset[Tier]] = frozenset({"microvm", "e2b"})
"""Tiers whose sandboxes can be copied with their memory."""


class SandboxPhase(StrEnum):
    """Where a sandbox is in its life; shown beside the state of its session."""

    CREATING = "creating"
    RUNNING = "running"
    PAUSING = "pausing"
    PERSISTING = "persisting"
    """What pausing or a checkpoint keeps is being written and confirmed."""
    PAUSED = "paused"
    RESUMING = "resuming"
    HEALING = "healing"
    """It runs again and is looked at before anybody trusts it."""
    EXPIRED = "expired"


class SandboxSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox may use at most."""

    time_s: float
    """For one run, unless it asks for less."""
    cpus: float
    memory_bytes: int
    """Data of each process where nothing better can be held; of all together where a cgroup is ours."""
    disk_bytes: int
    processes: int = 256


SIZES: Final[dict[str, SandboxSize]] = {
    "default": SandboxSize(time_s=30, cpus=2, memory_bytes=512 * MIB, disk_bytes=1024 * MIB),
    "build": SandboxSize(time_s=1800, cpus=4, memory_bytes=2048 * MIB, disk_bytes=4096 * MIB, processes=512),
    "max": SandboxSize(time_s=3600, cpus=8, memory_bytes=8192 * MIB, disk_bytes=10240 * MIB, processes=1024),
}


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of this machine that the sandbox sees."""

    source: str
    target: str = ""
    """Where it lies inside; empty is the same path."""
    writable: bool = False


class VolatileFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file inside that does not survive a pause, by policy, and is written anew after each resume."""

    path: str
    content: str = ""
    """Its text; empty where `source` says where that comes from."""
    source: str = ""
    """The name of a credential (`Credential.name`) that is its text."""
    mode: int = 0o600


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What runs inside beside the agent: started with the sandbox, looked for after each resume."""

    name: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    start: str
    """One line for the sandbox's own bash."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """Where the value of a variable comes from, each time that something is run; exactly one source is given."""

    name: str
    variable: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Further variables that get the same value."""


class HandedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of this machine of which an agent's home inside gets a copy at each start; taken away when it ends."""

    source: str
    """Its path; `~` is the home folder of whoever starts the agent. Where it is not there, nothing is handed over."""
    target: str = ""
    """Where the copy lies, below the home inside; empty: as below the home outside."""
    renews: bool = False
    """It is a log-in as JSON, and what the agent renews in the copy is brought back when the agent has ended: tokens
    and times alone, and only where nobody wrote the source meanwhile."""


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandbox is, and may; kept as `policy.json` beside the session's log. No secret's value is in here."""

    session: SessionId
    tier: LoggedTier = "jail"
    size: Literal["default", "build", "max"] = "default"
    template: str = ""
    """What a sandbox at a service is made from; empty is that service's own choice."""
    workspace: str = ""
    """The folder of this machine that is `/workspace` inside; empty is one of our own, removed with the session."""
    project: str = ""
    """A folder of this machine that is `/project` inside; empty is none."""
    project_writable: bool = False
    hosts: tuple[str, ...] = ()
    """Whom it may reach: hosts (`example.org`, `*.example.org`, `example.org:8443`) and presets; empty is nobody."""
    refuse: tuple[str, ...] = ()
    """Whom it is refused without a request, written like `hosts`."""
    mounts: tuple[Mount, ...] = ()
    volatile: tuple[VolatileFile, ...] = ()
    services: tuple[ServiceSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()
    files: tuple[HandedFile, ...] = ()
    """For an agent inside: what its home gets copies of."""
    secret_variables: tuple[str, ...] = ()
    """For an agent inside: the names of its variables whose values count as credentials: those given by `--env`, and of
    its profile's and the inherited ones those that are secret by their name."""


class SandboxRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sandbox lives now. It is no truth: whoever finds it asks the process before believing it."""

    pid: int = 0
    """The outermost process: bwrap, QEMU; 0 where it has none here."""
    started: float = 0.0
    """When that process started, by the system's clock."""
    front: int = 0
    """Of an agent inside: the process that stands in front of the sandbox, and is its pane's or its host's child."""
    boot: str = ""
    socket: str = ""
    """Where the agent inside answers."""
    ground: str = ""
    """The folder of what it needs on this machine."""
    remote: str = ""
    """The service's id of it, where it is a service's."""
    workspace: str = ""
    """The folder of this machine that is `/workspace` inside; it may be a copy of the policy's."""
    notices: tuple[str, ...] = ()
    """What a person should know of how it was made."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run, in the seed's words and a few more."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    session_preserved: bool = True
    """Whether what the interpreter held before is still there."""
    restarted: bool = False
    """The interpreter was started anew for this run, because it had died before."""
    timed_out: bool = False
    disk_full: bool = False
    """It was interrupted because it wrote more than the sandbox's disk may hold; `hint` has the figures."""
    omitted: int = 0
    """So many bytes of output are not in here."""
    hint: str = ""
    """What is kept, and what to do next; empty where all is well."""
    cwd: str = ""
    background: str = ""
    """What background jobs of earlier runs said since the last one; it is not in `stdout` and `stderr`."""
    turn: int = 0
    """Which run of this interpreter it was, the first being 1."""
    ms: float = 0.0
    """How long it took, in milliseconds."""
