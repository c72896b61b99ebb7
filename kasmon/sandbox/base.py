"""What every tier of sandbox promises: it can be created, found again, put to sleep, woken and destroyed by its id."""

import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, SandboxSize, Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotVerdict


class UnavailableReason(NamedTuple):
    """Why there is none of a tier here, and what would help."""

    why: str
    hint: str = ""


class TierProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a tier works on this machine, as tried and not as guessed."""

    tier: Tier
    ok: bool
    why: str = ""
    """Why not; or what it does not protect from."""
    hint: str = ""
    """How to get it."""
    measured_ms: float | None = None
    """How long the try took; None where nothing could be tried."""


class PauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox sleeps."""

    held: bool
    """Its processes still hold their memory; otherwise it is on disk, and nothing runs."""
    snapshot: str = ""
    """Where its memory is on disk: the id of that (`model.sandbox.snapshot.Snapshot.id`, or a service's)."""


class UsageReport(Protocol):
    """What a sandbox uses, beside what it may."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def allowed(self) -> SandboxSize: ...


class ConfinementProof(Protocol):
    """What was found of how a process is confined."""

    @property
    def ok(self) -> bool: ...
    @property
    def mismatches(self) -> Sequence[str]: ...


@runtime_checkable
class UsageTier(Protocol):
    """A tier that can tell what a sandbox uses."""

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> UsageReport: ...


@runtime_checkable
class ConfinementTier(Protocol):
    """A tier that can tell how a sandbox is confined."""

    def prove(self, policy: SandboxPolicy, pid: int, /) -> ConfinementProof:
        """Whether the process *pid*, of this machine's numbering, is confined as *policy* wants.

        Raises:
            SandboxError: if it may not be looked at.
        """
        ...


@runtime_checkable
class OwnKernelTier(Protocol):
    """A tier whose sandboxes have a kernel that is not this machine's: the agent inside tells how it is there."""

    @property
    def has_own_kernel(self) -> Literal[True]: ...


@runtime_checkable
class EgressTier(Protocol):
    """A tier whose sandboxes have a way out that can be changed while they live."""

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Let it lead whither *policy* says from now on.

        Raises:
            UnableError: if the sandbox that lives was made without one.
        """
        ...

    def refusals(self, policy: SandboxPolicy, since: float, /) -> str:
        """Whom it did not reach after *since*, and how that is allowed; empty where nobody was refused."""
        ...


@runtime_checkable
class MirrorTier(Protocol):
    """A tier whose sandboxes have a copy of their folders, which come out with each answer."""

    def refresh(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> tuple[str, ...]:
        """Put what changed outside into the one that lives at *runtime*; what a person should know of it, as sentences.

        Raises:
            SandboxError: if it is gone, or does not answer.
        """
        ...


class PortConnector(Protocol):
    """A way to the ports of one sandbox."""

    def connect(self, port: int) -> socket.socket:
        """A connection to 127.0.0.1:*port* inside.

        Raises:
            SandboxError: if nothing listens there, or it cannot be reached.
        """
        ...

    def close(self) -> None:
        """Leave; idempotent. Connections that were made stay."""
        ...


@runtime_checkable
class PortTier(Protocol):
    """A tier whose sandboxes' ports can be reached from this machine, while they are awake."""

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> PortConnector:
        """The way to the ports of the one that lives at *runtime*.

        Raises:
            SandboxError: if it is gone, or cannot be reached.
        """
        ...


@runtime_checkable
class InspectableTier(Protocol):
    """A tier whose sandboxes can be looked into from outside while they live, asleep or not."""

    def folders(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Mapping[str, Path]:
        """Folders that are no part of the workspace, and may hold what code left: where each is inside, and for us.

        No link in there is to be followed.
        """
        ...

    def environments(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Iterator[tuple[str, bytes]]:
        """Yield each process inside, in words, with what it was started with."""
        ...

    def mapped(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> Container[int]:
        """The inodes of files that somebody inside can write to as to memory now: their times may not tell of that."""
        ...


@runtime_checkable
class HostedTier(Protocol):
    """A tier whose sandboxes are not on this machine: one that sleeps is kept there, with its memory, at once."""

    @property
    def is_elsewhere(self) -> Literal[True]: ...

    def learn(self, variables: Mapping[str, str], /) -> None:
        """Take what this process needs to reach them from *variables* of who wants something of it, if it is there."""
        ...

    def fetch(self, policy: SandboxPolicy, /) -> None:
        """Bring the folders of this machine up to what the sandbox of *policy* has in them, where it runs; for its end.

        Raises:
            SandboxError: if that cannot be done.
        """
        ...


@runtime_checkable
class RecordTier(Protocol):
    """A tier that knows by its own records what became of a sandbox whose keeper died before it could note that."""

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """The sandbox of *policy* that lives, and runs or sleeps in memory; None where none does."""
        ...

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        """The memory on disk that *policy*'s sandbox can go on from, by its record; None where there is none."""
        ...


@runtime_checkable
class LocalSnapshotTier(Protocol):
    """A tier that keeps memories on this machine's disk, each with a record of what it is."""

    def judged(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        """The last memory of *policy*'s sandbox on disk, whether it may be gone on from or not; None if there is none.

        Its files are read through, which takes as long as that does, only where it is to be told of the *whole*.
        """
        ...


@runtime_checkable
class ForkTier(Protocol):
    """A tier that can copy a sandbox with its memory."""

    def fork(self, policy: SandboxPolicy, slept: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        """Lay down for *other*, which has nothing yet, the disk and the memory that *policy*'s sandbox sleeps in on
        disk. Each is resumed as its own; the one that was copied sleeps on.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from.
            SandboxError: if it could not be copied; nothing of *other* is there then.
        """
        ...


class SandboxTier(Protocol):
    """One way of confining. All calls may block, up to 10 s unless said otherwise, and raise `SandboxError`."""

    tier: Tier
    keeps_memory: bool
    """Whether `pause` with `to_disk` survives the end of every process, with what interpreters hold."""

    def probe(self) -> TierProbe:
        """Try it."""
        ...

    def missing(self) -> UnavailableReason | None:
        """What it takes that is not here, as far as that is seen at once, without trying; None where nothing is."""
        ...

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """The folder of this machine that is `/workspace` inside, wherever that is kept."""
        ...

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Make it; the agent inside answers when this returns. Whatever was begun is gone where it raises."""
        ...

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the sandbox of *runtime* is still that one and lives, asleep or not."""
        ...

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """The command that runs *argv* inside a sandbox of its own, on the caller's stdin, stdout and terminal."""
        ...

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop all in it. *to_disk* ends its processes and keeps their memory, where the tier can.

        *turn*: how many the session has had, for what is written of that memory. A memory of before is kept until the
        new one is confirmed; where that fails this raises, and the sandbox can go on.

        Raises:
            UnableError: for *to_disk* where `keeps_memory` is false.
        """
        ...

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, /) -> SandboxRuntime:
        """Go on with it. It is to be healed before anybody trusts it.

        From a memory on disk it goes on once: that is noted there before anything inside runs.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from; nothing runs then.
            SandboxUnreachableError: if it cannot be woken now; it sleeps on as it was.
        """
        ...

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Leave no process, socket, mount or memory of it; idempotent. Its workspace is not touched."""
        ...

    def forget(self, policy: SandboxPolicy, /) -> str:
        """Remove what a destroyed sandbox left to its session: its home, and a workspace of our own. Idempotent.

        Where it worked on a copy of the folder that it was given, and not all in it is as it is there, the copy stays:
        its path, else "".
        """
        ...
