"""What this machine knows of the sandboxes at the service: which is whose, and where its files lie here."""

from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import RefusedError, SandboxError, SandboxUnreachableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, private_folder, write_private
from kasmon.sandbox.network.allowlist import allowlist


class E2bRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine knows of one session's sandbox."""

    attempt: str
    """By which the service knows that a second call is the first one again."""
    runtime: SandboxRuntime | None = None
    paused_at: float | None = None
    hosts: tuple[str, ...] = ()
    """Whom the service lets it reach."""
    has_home: bool = False
    """An agent lives in it, whose home is here too."""
    keeps: bool = True
    """Its memory may be kept at the service."""


class E2bRecords:
    """Those of one kasmon. Making this touches nothing."""

    def __init__(self, places: Paths) -> None:
        self._places = places

    def make(self, policy: SandboxPolicy) -> None:
        """Have the folders of a session, and a workspace of our own where its policy names none."""
        private_folder(self._places.state)
        private_folder(self.ground(policy).parent)
        private_folder(self.ground(policy))
        if not policy.workspace:
            private_folder(Path(self.workspace(policy)))
        self._places.make()

    def ground(self, policy: SandboxPolicy) -> Path:
        """The folder of all that is here of a session."""
        return self._places.state / "e2b" / policy.session

    def workspace(self, policy: SandboxPolicy) -> str:
        """The folder of this machine that has what `/workspace` inside has."""
        return policy.workspace or str(self.ground(policy) / "workspace")

    def note(self, policy: SandboxPolicy) -> Path:
        """Where it stands what the sandbox has of that."""
        return self.ground(policy) / "outside.json"

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

    def known(self, policy: SandboxPolicy, identity: str) -> tuple[E2bRecord, SandboxRuntime]:
        """What is known of the one that is called *identity* at the service; of any, where nobody knows how.

        Raises:
            SandboxError: if there is no record of it.
        """
        record = self.of(policy)
        if record is None or record.runtime is None or identity not in ("", record.runtime.remote):
            raise SandboxError(f"the sandbox of {policy.session!r} has ended", "there is no record of it")
        return record, record.runtime

    def write(self, policy: SandboxPolicy, record: E2bRecord) -> None:
        """Keep *record*.

        Raises:
            SandboxUnreachableError: if it cannot be written: what the service has is as it was, and not known here.
        """
        try:
            write_private(self._path(policy), msgspec.json.encode(record))
        except OSError as error:
            what = f"cannot record the service's sandbox of {policy.session!r}"
            raise SandboxUnreachableError(what, error.strerror or str(error)) from error

    def remove(self, policy: SandboxPolicy) -> None:
        """The sandbox is gone; its files stay. Idempotent."""
        self._path(policy).unlink(missing_ok=True)

    def _path(self, policy: SandboxPolicy) -> Path:
        return self.ground(policy) / "record.json"


def must_fit(policy: SandboxPolicy) -> None:
    """
    Raises:
        RefusedError: if *policy* wants what cannot be at a service.
    """
    if policy.project or policy.mounts:
        raise RefusedError(
            "a sandbox at the service has only a copy of its workspace, no other folder of this machine.",
            hint="Leave out the project and the mounts, or use the tier `jail`.",
        )


TLS: Final = 443
"""The service knows hosts by what they are called in TLS and HTTP, at the ports of both: a host of this port alone is
allowed there at the other one too, which is said."""


def widened(policy: SandboxPolicy) -> tuple[str, ...]:
    """Hosts of *policy* that the service lets it reach at more than the port that was named."""
    return tuple(sorted({entry.name for entry in allowlist(policy.hosts) if entry.port == TLS and not entry.private}))


def hosts(policy: SandboxPolicy) -> tuple[str, ...]:
    """Whom the service lets it reach.

    Raises:
        UsageError: if what *policy* says is no list of hosts.
        RefusedError: if the service cannot hold to it.
    """
    entries = allowlist(policy.hosts)
    for entry in entries:
        if entry.port not in (0, TLS) or entry.private:
            raise RefusedError(
                f"{entry.name!r} cannot be allowed at the service for one port, or in a private network."
            )
    return tuple(sorted({entry.name for entry in entries}))
