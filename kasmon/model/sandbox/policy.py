"""A sandbox as values: its tier, size and policy, its runtime, its phase, and the results of its runs."""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kasmon.model.permission import SessionId

Tier: TypeAlias = Literal["jail", "microvm", "e2b"]
LoggedTier: TypeAlias = Literal[Tier, "gvisor"]
"""A tier in stored files: earlier versions also wrote `gvisor`, and their files are still read."""
Interpreter: TypeAlias = Literal["python", "bash", "node"]
INTERPRETERS: Final[tuple[Interpreter, ...]] = ("python", "bash", "node")
MIB: Final = 1024 * 1024
REMEMBERING: Final[frozenset[Tier]] = frozenset({"microvm", "e2b"})
"""Tiers whose sandboxes can be paused without a process: their memory is on disk, or at the service."""
COPYING: Final[frozenset[Tier]] = frozenset({"microvm", "e2b"})
"""Tiers whose sandboxes can be forked with their memory."""


class SandboxPhase(StrEnum):
    """The phase of a sandbox; shown beside the state of its session."""

    CREATING = "creating"
    RUNNING = "running"
    PAUSING = "pausing"
    PERSISTING = "persisting"
    """The data of a pause or a checkpoint is being written and confirmed."""
    PAUSED = "paused"
    RESUMING = "resuming"
    HEALING = "healing"
    """It runs again and is verified before it is used."""
    EXPIRED = "expired"


class SandboxSize(msgspec.Struct, frozen=True, kw_only=True):
    """The resource limits of a sandbox."""

    time_s: float
    """The default and maximum time of one run."""
    cpus: float
    memory_bytes: int
    """Per process, unless kasmon owns a cgroup: then of all processes together."""
    disk_bytes: int
    processes: int = 256


SIZES: Final[dict[str, SandboxSize]] = {
    "default": SandboxSize(time_s=30, cpus=2, memory_bytes=512 * MIB, disk_bytes=1024 * MIB),
    "build": SandboxSize(time_s=1800, cpus=4, memory_bytes=2048 * MIB, disk_bytes=4096 * MIB, processes=512),
    "max": SandboxSize(time_s=3600, cpus=8, memory_bytes=8192 * MIB, disk_bytes=10240 * MIB, processes=1024),
}


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of this machine that is visible in the sandbox."""

    source: str
    target: str = ""
    """Its path in the sandbox; empty is the same path."""
    writable: bool = False


class VolatileFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the sandbox that by policy does not survive a pause, and is rewritten after each resume."""

    path: str
    content: str = ""
    """Its text; empty if `source` names it."""
    source: str = ""
    """The name of a credential (`Credential.name`) that is its text."""
    mode: int = 0o600


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A service beside the agent: started with the sandbox, checked after each resume."""

    name: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    start: str
    """One line for the sandbox's own bash."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a variable's value, read for each run; exactly one source is given."""

    name: str
    variable: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Further variables with the same value."""


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of this machine that is copied into a sandboxed agent's home at each start, and removed when it ends."""

    source: str
    """Its path; `~` is the home folder of the user. A missing file is skipped."""
    target: str = ""
    """The copy's path relative to the sandbox's home; empty: as relative to the user's home."""
    renews: bool = False
    """It holds login credentials as JSON. Those that the agent renewed are copied back when it has ended: tokens and
    times alone, and only if the source did not change meanwhile."""


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The description and permissions of one sandbox; `policy.json` beside the session's log. It holds no secrets."""

    session: SessionId
    tier: LoggedTier = "jail"
    size: Literal["default", "build", "max"] = "default"
    template: str = ""
    """The template of a sandbox at a service; empty is that service's default."""
    workspace: str = ""
    """The local folder that is `/workspace` inside; empty is one of kasmon's own, removed with the session."""
    project: str = ""
    """A folder of this machine that is `/project` inside; empty is none."""
    project_writable: bool = False
    hosts: tuple[str, ...] = ()
    """The allowed hosts (`example.org`, `*.example.org`, `example.org:8443`) and presets; empty allows none."""
    refuse: tuple[str, ...] = ()
    """Hosts that are refused without a request, written like `hosts`."""
    mounts: tuple[Mount, ...] = ()
    volatile: tuple[VolatileFile, ...] = ()
    services: tuple[ServiceSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()
    files: tuple[CopiedFile, ...] = ()
    """For a sandboxed agent: the files copied into its home."""
    secret_variables: tuple[str, ...] = ()
    """For a sandboxed agent: the names of its variables whose values count as credentials: those given by `--env`, and
    of its profile's and the inherited ones those with a secret-like name."""


class SandboxRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sandbox runs now. A stored value is only a hint: verify the process before you trust it."""

    pid: int = 0
    """The outermost process: bwrap, QEMU; 0 if it has none on this machine."""
    started: float = 0.0
    """That process's start time, by the system's clock."""
    front: int = 0
    """For a sandboxed agent: the stdio proxy of the sandbox, a child of its pane or host."""
    boot: str = ""
    socket: str = ""
    session_folder: str = msgspec.field(default="", name="ground")
    """The folder of its files on this machine."""
    remote: str = ""
    """The service's id of it, if a service runs it."""
    workspace: str = ""
    """The folder of this machine that is `/workspace` inside; it may be a copy of the policy's."""
    notices: tuple[str, ...] = ()
    """Notes for the user about how it was created."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    session_preserved: bool = True
    """Whether the interpreter's earlier state still exists."""
    restarted: bool = False
    """The interpreter was restarted for this run, because it had died before."""
    timed_out: bool = False
    disk_full: bool = False
    """It was interrupted because it wrote more than the sandbox's disk limit; `hint` has the figures."""
    omitted: int = 0
    """How many bytes of output are left out."""
    hint: str = ""
    """What is retained, and what to do next; empty after a normal run."""
    cwd: str = ""
    background: str = ""
    """Output of background jobs of earlier runs since the last one; not part of `stdout` and `stderr`."""
    turn: int = 0
    """The number of this run in its interpreter, counted from 1."""
    ms: float = 0.0
    """The run's duration, in milliseconds."""
