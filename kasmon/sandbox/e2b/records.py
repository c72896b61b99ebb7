"""This machine's records of the sandboxes at the service: each session's sandbox, and the paths of its files here."""

from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import RefusedError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, private_folder, write_private
from kasmon.sandbox.network.allowlist import allowlist


class E2bRecord(msgspec.Struct, frozen=True, kw_only=True):
    attempt: str
    """Idempotency key, by which the service recognizes a repeated creation."""
    runtime: SandboxRuntime | None = None
    paused_at: float | None = None
    hosts: tuple[str, ...] = ()
    """The hosts that the service lets it reach."""
    has_home: bool = False
    """An agent runs in it, whose home is synchronized with this machine too."""
    keeps: bool = True
    """Its memory may be stored at the service."""


class E2bRecords:
    """The records of one kasmon. The constructor touches no file."""

    def __init__(self, places: Paths) -> None:
        self._places = places

    def make(self, policy: SandboxPolicy) -> None:
        """Create a session's folders, and a workspace where its policy names none."""
        private_folder(self._places.state)
        private_folder(self.session_folder(policy).parent)
        private_folder(self.session_folder(policy))
        if not policy.workspace:
            private_folder(Path(self.workspace(policy)))
        self._places.make()

    def session_folder(self, policy: SandboxPolicy) -> Path:
        """The folder of all files of a session's sandbox here."""
        return self._places.state / "e2b" / policy.session

    def workspace(self, policy: SandboxPolicy) -> str:
        """The folder of this machine that is synchronized with `/workspace` inside."""
        return policy.workspace or str(self.session_folder(policy) / "workspace")

    def note(self, policy: SandboxPolicy) -> Path:
        """The file that records which state of the workspace the sandbox has."""
        return self.session_folder(policy) / "outside.json"

    def of(self, policy: SandboxPolicy) -> E2bRecord | None:
        """
        Raises:
            SandboxError: if it cannot be read.
        """
        try:
            return msgspec.json.decode(self._path(policy).read_bytes(), type=E2bRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError(f"the record of the sandbox of {policy.session!r} cannot be read", str(error)) from error

    def require(self, policy: SandboxPolicy, identity: str) -> tuple[E2bRecord, SandboxRuntime]:
        """Return the record of the sandbox with the service's id *identity*; an empty *identity* matches any.

        Raises:
            SandboxError: if there is no such record.
        """
        record = self.of(policy)
        if record is None or record.runtime is None or identity not in ("", record.runtime.remote):
            raise SandboxError(f"the sandbox of {policy.session!r} has ended", "there is no record of it")
        return record, record.runtime

    def write(self, policy: SandboxPolicy, record: E2bRecord) -> None:
        """Store *record*.

        Raises:
            SandboxUnreachableError: if it cannot be written: the service's sandbox is unchanged, but not recorded here.
        """
        try:
            write_private(self._path(policy), msgspec.json.encode(record))
        except OSError as error:
            what = f"cannot record the service's sandbox of {policy.session!r}"
            raise SandboxUnreachableError(what, error.strerror or str(error)) from error

    def remove(self, policy: SandboxPolicy) -> None:
        """Remove the record of a sandbox that is gone; its files stay. Idempotent."""
        self._path(policy).unlink(missing_ok=True)

    def _path(self, policy: SandboxPolicy) -> Path:
        return self.session_folder(policy) / "record.json"


def check_policy(policy: SandboxPolicy) -> None:
    """
    Raises:
        RefusedError: if *policy* requires what a service cannot provide.
    """
    if policy.project or policy.mounts:
        raise RefusedError(
            "a sandbox at the service has only a copy of its workspace, no other folder of this machine.",
            hint="Leave out the project and the mounts, or use the tier `jail`.",
        )


TLS: Final = 443
"""The service matches hosts by name in TLS and HTTP, on the ports of both: a host allowed on this port alone is allowed
on the other one too, which is reported."""


def find_widened_hosts(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the hosts of *policy* that the service lets it reach on more than the named port."""
    return tuple(sorted({entry.name for entry in allowlist(policy.hosts) if entry.port == TLS and not entry.private}))


def hosts(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the hosts that the service lets it reach.

    Raises:
        UsageError: if the hosts of *policy* are no valid list.
        RefusedError: if the service cannot enforce it.
    """
    entries = allowlist(policy.hosts)
    for entry in entries:
        if entry.port not in (0, TLS) or entry.private:
            raise RefusedError(
                f"{entry.name!r} cannot be allowed at the service for one port, or in a private network."
            )
    return tuple(sorted({entry.name for entry in entries}))
