"""Protocols of the sandbox tiers: each creates, finds, pauses, resumes and destroys a sandbox by its policy.

All calls may block, up to 10 s unless stated otherwise, and raise `SandboxError` if they fail.
"""

import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, SandboxSize, Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotVerdict
from kasmon.sandbox.network.denials import Denial


class UnavailableReason(NamedTuple):
    """Why a tier is unavailable on this machine, and how to get it."""

    why: str
    hint: str = ""


class TierProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a tier works on this machine: the result of a trial, not a guess."""

    tier: Tier
    ok: bool
    why: str = ""
    """Why it is unavailable; or, where *ok*, what it does not protect from."""
    hint: str = ""
    """How to get it."""
    measured_ms: float | None = None
    """How long the trial took, in milliseconds; None where nothing could be tried."""


class PauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox is paused."""

    held: bool
    """Its processes hold their memory in RAM; otherwise the memory is on disk and no process runs."""
    snapshot: str = ""
    """The id of its snapshot on disk (`model.sandbox.snapshot.Snapshot.id`, or a service's)."""


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox uses, and its limits."""

    memory_bytes: int
    """Memory of its control group; without a group, the memory of its processes that is not shared."""
    disk_bytes: int
    """Size of its workspace and home; a lower bound if there are too many files to count."""
    processes: int
    allowed: SandboxSize
    """Its memory limit is for all processes together if a control group holds it; otherwise for each process."""


class ConfinementProof(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a process is confined as expected."""

    ok: bool
    mismatches: tuple[str, ...] = ()
    """Each difference, as text for the user."""


@runtime_checkable
class UsageTier(Protocol):
    """A tier that can report what a sandbox uses."""

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> UsageReport: ...


@runtime_checkable
class ConfinementTier(Protocol):
    """A tier that can report how a sandbox is confined."""

    def prove(self, policy: SandboxPolicy, pid: int, /) -> ConfinementProof:
        """Whether the process *pid* (as numbered on this machine) is confined as *policy* requires."""


@runtime_checkable
class OwnKernelTier(Protocol):
    """A tier whose sandboxes have their own kernel: the guest program reports the confinement there."""

    @property
    def has_own_kernel(self) -> Literal[True]: ...


@runtime_checkable
class EgressTier(Protocol):
    """A tier whose sandboxes have a network egress that can be changed while they run."""

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Apply the allowlist of *policy* to the egress from now on.

        Raises:
            UnableError: if the running sandbox was created without an egress.
        """

    def denials(self, policy: SandboxPolicy, since: float = 0.0, /) -> tuple[Denial, ...]:
        """The connections refused after *since*, oldest first; none where a service filters them and reports none."""


@runtime_checkable
class MirrorTier(Protocol):
    """A tier whose sandboxes work on a copy of their folders; changes are copied out with each answer."""

    def refresh(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> tuple[str, ...]:
        """Copy what changed outside into the sandbox at *runtime*; return what the user should know, as sentences."""


class PortConnector(Protocol):
    """Connects to the ports of one sandbox."""

    def connect(self, port: int) -> socket.socket:
        """Return a connection to 127.0.0.1:*port* inside; a `SandboxError` if nothing listens there."""

    def close(self) -> None:
        """Close the connector; idempotent. Connections already made stay open."""


@runtime_checkable
class PortTier(Protocol):
    """A tier whose sandboxes' ports can be reached from this machine, unless they are paused."""

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> PortConnector:
        """Return a connector to the ports of the sandbox at *runtime*."""


@runtime_checkable
class InspectableTier(Protocol):
    """A tier whose sandboxes can be inspected from outside, running or paused."""

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Mapping[str, Path]:
        """Map the path inside to the path on this machine, for folders outside the workspace where code may write.

        A caller must not follow links in them.
        """

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Iterator[tuple[str, bytes]]:
        """Yield a description of each process inside, with its initial environment."""

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Container[int]:
        """The inodes of files that a process inside has mapped writable: their times may not show its writes."""


@runtime_checkable
class HostedTier(Protocol):
    """A tier whose sandboxes run at a service: pausing one stores it there at once, with its memory."""

    @property
    def is_elsewhere(self) -> Literal[True]: ...

    def add_access(self, variables: Mapping[str, str], /) -> None:
        """Take from *variables*, a caller's environment, what this process needs to reach the service, if present."""

    def fetch(self, policy: SandboxPolicy, /) -> None:
        """Bring this machine's folders up to date with the sandbox of *policy*, before that ends."""


@runtime_checkable
class RecordTier(Protocol):
    """A tier whose own records show the state of a sandbox whose host died before it could log that."""

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Return the sandbox of *policy* that runs or is paused in RAM; None where there is none."""

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        """Return the snapshot on disk that *policy*'s sandbox can resume, by its record; None if there is none."""


@runtime_checkable
class LocalSnapshotTier(Protocol):
    """A tier that stores snapshots on this machine's disk, each with a record."""

    def check_snapshot(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        """Return the last snapshot of *policy*'s sandbox, whether or not it may be resumed; None if there is none.

        Its files are read in full, which takes time, only for *whole*.
        """


@runtime_checkable
class ForkTier(Protocol):
    """A tier that can copy a sandbox with its memory."""

    def fork(self, policy: SandboxPolicy, paused: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        """Copy disk and memory of *policy*'s sandbox, which is paused on disk, to *other*, which has no files yet.
        Each is then resumed on its own; the original stays paused.

        Raises:
            SnapshotRefusedError: if that snapshot may not be resumed.
            SandboxError: if it could not be copied; no file of *other* is left then.
        """


class SandboxTier(Protocol):
    """One sandbox technology."""

    tier: Tier
    keeps_memory: bool
    """Whether `pause` with `to_disk` keeps the memory of all processes, interpreter state included, once they ended."""

    def probe(self) -> TierProbe:
        """Try out the tier on this machine."""

    def missing(self) -> UnavailableReason | None:
        """Return which requirement is absent, by a quick check without a trial; None where none is."""

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """The folder of this machine that is `/workspace` inside."""

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Create the sandbox; its guest program answers when this returns. If it raises, nothing is left behind."""

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether *runtime* still names the same sandbox and it exists, running or paused."""

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a sandbox of its own, on the caller's stdin, stdout and terminal."""

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop all processes in it. *to_disk* ends them and stores their memory, where the tier can.

        *turn*: the session's number of turns, for the snapshot's record. The snapshot before is kept until the new one
        is confirmed; if that fails this raises, and the sandbox can be resumed.

        Raises:
            UnableError: for *to_disk* where `keeps_memory` is false.
        """

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, paused: PauseResult, /) -> SandboxRuntime:
        """Resume the sandbox; the caller heals it before use.

        A snapshot on disk is resumed once: its record is marked before anything inside runs.

        Raises:
            SnapshotRefusedError: if that snapshot may not be resumed; nothing runs then.
            SandboxUnreachableError: if it cannot be resumed now; it stays paused.
        """

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets, mounts and snapshots; idempotent. Its workspace is not touched."""

    def forget(self, policy: SandboxPolicy, /) -> str:
        """Remove the home of a destroyed sandbox, and its workspace if kasmon made that. Idempotent.

        Returns the path of its copy of a given folder, which stays where it differs from that folder; else "".
        """
