"""This machine's records of the sandboxes at the service, and what a policy may require of the service."""

from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import RefusedError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import write_private
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.shared.host_folders import HostFolders


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
    """The records of one kasmon, each in its session's folder. The constructor touches no file."""

    def __init__(self, host_folders: HostFolders) -> None:
        self._host_folders = host_folders

    def of(self, policy: SandboxPolicy) -> E2bRecord | None:
        """Return the record of the sandbox of *policy*. Raises `SandboxError` if it cannot be read."""
        try:
            return msgspec.json.decode(self._path(policy).read_bytes(), type=E2bRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError(f"the record of the sandbox of {policy.session!r} cannot be read", str(error)) from error

    def require(self, policy: SandboxPolicy, identity: str) -> tuple[E2bRecord, SandboxRuntime]:
        """Return the record of the sandbox *identity* (empty: any). Raises `SandboxError` if there is none."""
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
        return self._host_folders.of(policy.session) / "record.json"


def check_policy(policy: SandboxPolicy) -> None:
    """Raise `RefusedError` if *policy* requires what a service cannot provide."""
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
