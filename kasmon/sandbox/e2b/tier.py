"""The tier `e2b`: a sandbox is a microVM at a service, reached by its id, paused there with its memory.

This machine has a relay for each (`far/relay.py`), which joins whoever connects to its socket to the agent inside, and
a copy of its workspace. Which sandbox at the service is whose stands in a record, and at the service as a name: so one
that nobody noted is found again, and one that the service has no more is said to be gone.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from kasmon.errors import ExtraMissingError, KasmonError, RefusedError, SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Policy, Runtime, Tier
from kasmon.model.snapshot import Maker, Snapshot
from kasmon.paths import Places, places, private_folder, write_private
from kasmon.sandbox.base import Probe, Slept
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.inhabited import inhabit
from kasmon.sandbox.far import relay
from kasmon.sandbox.jail.tree import raze
from kasmon.sandbox.network.allow import allowlist

WAY: Final = "kasmon.sandbox.e2b.way"
TIMEOUT_S: Final = 1200
"""Unused for so long it is paused by the service itself: longer than kasmon waits, so only where kasmon is gone."""
PROLONG_S: Final = 240.0
"""So often a run that goes on is told to the service."""
HINT: Final = "Set E2B_API_KEY to a key of the service (https://e2b.dev), where kasmon is started."
SIZED: Final = "its processors, memory and disk are those of its template at the service, not those of its size"
COPIED: Final = "what is changed in its folder here, while it lives, is not seen inside; what it changes is fetched"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine knows of one session's sandbox."""

    attempt: str
    """By which the service knows that a second call is the first one again."""
    runtime: Runtime | None = None
    paused_at: float | None = None


class E2b:
    """The sandboxes of one kasmon at the service. Making this touches nothing."""

    tier: Tier = "e2b"
    keeps_memory = True

    def __init__(
        self,
        of: Places | None = None,
        *,
        access: service.Access | None = None,
        timeout_s: int = TIMEOUT_S,
        prolong_s: float = PROLONG_S,
    ) -> None:
        """
        Args:
            of: whose; by default those of the kasmon that the environment names.
            access: to the service; by default as the environment says.
            timeout_s: unused for so many seconds the service pauses one by itself.
            prolong_s: so often a run that goes on is told to the service, in seconds.
        """
        self.places = of or places()
        self._given, self._timeout_s, self._prolong_s = access, timeout_s, prolong_s

    @property
    def is_elsewhere(self) -> Literal[True]:
        return True

    def probe(self) -> Probe:
        """Ask the service something; no sandbox is made for that, since they cost."""
        began = time.monotonic()
        try:
            service.named(self._access(), self._name(SessionId("probe")))
        except ExtraMissingError as error:
            return Probe(tier="e2b", ok=False, why="the SDK is not installed", hint=error.hint)
        except KasmonError as error:
            return Probe(tier="e2b", ok=False, why=error.message.rstrip("."), hint=error.hint)
        return Probe(
            tier="e2b",
            ok=True,
            why="its files and memory are at the service, and none was made to try it",
            measured_ms=(time.monotonic() - began) * 1000,
        )

    def workspace(self, policy: Policy, /) -> str:
        """The folder of this machine that has what `/workspace` inside has."""
        return policy.workspace or str(self._ground(policy) / "workspace")

    def create(self, policy: Policy, /) -> Runtime:
        """Make it; the agent inside answers when this returns.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if its policy wants what cannot be at a service.
        """
        _must_fit(policy)
        access = self._access()
        if (known := self._record(policy)) is not None and known.runtime is not None:
            raise SandboxError(f"no sandbox was made for {policy.session!r}", "it has one")
        private_folder(self.places.state)
        private_folder(self._ground(policy).parent)
        private_folder(self._ground(policy))
        if not policy.workspace:
            private_folder(Path(self.workspace(policy)))
        self.places.make()
        record = Record(attempt=secrets.token_hex(16))
        self._write(policy, record)
        try:
            hosts = _hosts(policy)
            name, template = self._name(policy.session), policy.template
            sandbox = service.made(access, template, self._timeout_s, name, hosts, record.attempt)
            inhabit(sandbox, self.workspace(policy))
            runtime = self._relayed(policy, access, sandbox.sandbox_id)
        except BaseException:
            self._left(policy)
            raise
        self._write(policy, msgspec.structs.replace(record, runtime=runtime))
        return runtime

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        """Whether it is still that one, and is at the service.

        Raises:
            SandboxError: if the service does not say.
        """
        record = self._record(policy)
        if record is None or record.runtime is None or _who(record.runtime) != _who(runtime):
            return False
        if not relay.is_there(runtime) and record.paused_at is None:
            return False
        return bool(service.state(self._access(), runtime.remote))

    def adopt(self, policy: Policy, /) -> Runtime | None:
        """The one of *policy* that is at the service, reached anew; None where the service has none.

        Raises:
            SandboxError: if the service does not say.
        """
        record = self._record(policy)
        if record is None or record.runtime is None:
            return None
        access = self._access()
        if not service.state(access, record.runtime.remote):
            return None
        relay.ended(record.runtime)
        runtime = self._relayed(policy, access, record.runtime.remote)
        self._write(policy, msgspec.structs.replace(record, runtime=runtime))
        return runtime

    def kept(self, policy: Policy, /) -> Snapshot | None:
        """The memory that the service keeps of it while it is paused, whose size it does not say."""
        record = self._record(policy)
        if record is None or record.runtime is None or record.paused_at is None:
            return None
        identity, maker = record.runtime.remote, Maker(program="e2b")
        return Snapshot(id=identity, session=policy.session, tier="e2b", at=record.paused_at, made_by=maker)

    def wrap(self, policy: Policy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /) -> list[str]:
        """
        Raises:
            UnableError: always.
        """
        raise UnableError(
            "no agent runs in a sandbox at the service: interpreters do.", hint="Take the sandbox `jail`."
        )

    def pause(self, policy: Policy, runtime: Runtime, /, *, to_disk: bool = False, turn: int = 0) -> Slept:
        """Let the service pause it, with its memory; it is kept there either way.

        Raises:
            SandboxError: if that is not done; it runs then, or is gone.
        """
        record = self._must_know(policy, runtime)
        relay.ended(runtime)
        service.paused(self._access(), runtime.remote)
        self._write(policy, msgspec.structs.replace(record, paused_at=time.time()))
        return Slept(held=False, snapshot=runtime.remote)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        """Let it go on; one that was not paused goes on as it was.

        Raises:
            SandboxError: if the service has it no more, or cannot be reached.
        """
        record = self._must_know(policy, runtime)
        access = self._access()
        service.connected(access, runtime.remote, self._timeout_s)
        if not relay.is_there(runtime):
            runtime = self._relayed(policy, access, runtime.remote)
        self._write(policy, msgspec.structs.replace(record, runtime=runtime, paused_at=None))
        return runtime

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave nothing of it here but its workspace, and nothing at the service. Idempotent.

        Raises:
            SandboxError: if the service does not say that it is gone; the record stays, so that it can be tried again.
        """
        record = self._record(policy)
        for known in (record.runtime if record else None, runtime):
            relay.ended(known)
        if record is not None:
            access = self._access()
            for identity in {*service.named(access, self._name(policy.session)), *_remote(record.runtime)}:
                service.killed(access, identity)
            self._path(policy).unlink(missing_ok=True)

    def forget(self, policy: Policy, /) -> str:
        """Remove what is kept of it here too; a folder that was given stays as it is. Idempotent.

        Raises:
            SandboxError: as for `destroy`, or if something is left here.
        """
        self.destroy(policy, None)
        try:
            raze(self._ground(policy))
        except OSError as error:
            raise SandboxError(f"something of the sandbox of {policy.session!r} is left", str(error)) from error
        return ""

    def _access(self) -> service.Access:
        found = self._given or service.access()
        if found is None:
            raise SandboxError("the service cannot be asked", "there is no key for it", HINT)
        return found

    def _relayed(self, policy: Policy, access: service.Access, identity: str) -> Runtime:
        path = self.places.runtime / f"{policy.session}.box"
        given = {
            "access": msgspec.to_builtins(access),
            "remote": identity,
            "workspace": self.workspace(policy),
            "timeout_s": self._timeout_s,
            "prolong_s": self._prolong_s,
        }
        runtime = relay.started(WAY, path, given)
        return msgspec.structs.replace(
            runtime,
            remote=identity,
            ground=str(self._ground(policy)),
            workspace=self.workspace(policy),
            notices=(SIZED, COPIED),
        )

    def _left(self, policy: Policy) -> None:
        """Clear away what was begun; what the service keeps of it is found again by its name."""
        try:
            self.destroy(policy, None)
        except KasmonError:
            return

    def _must_know(self, policy: Policy, runtime: Runtime) -> Record:
        record = self._record(policy)
        if record is None or record.runtime is None or record.runtime.remote != runtime.remote:
            raise SandboxError(f"the sandbox of {policy.session!r} is gone", "nothing here knows of it")
        return record

    def _name(self, session: SessionId) -> str:
        """Under which the service has it; no other kasmon's is called so."""
        whose = os.uname().nodename.encode() + os.fsencode(self.places.state)
        return f"{hashlib.sha256(whose).hexdigest()[:16]}-{session}"

    def _ground(self, policy: Policy) -> Path:
        return self.places.state / "e2b" / policy.session

    def _path(self, policy: Policy) -> Path:
        return self._ground(policy) / "record.json"

    def _record(self, policy: Policy) -> Record | None:
        try:
            return msgspec.json.decode(self._path(policy).read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError(f"the sandbox of {policy.session!r} is not known", str(error)) from error

    def _write(self, policy: Policy, record: Record) -> None:
        write_private(self._path(policy), msgspec.json.encode(record))


def _must_fit(policy: Policy) -> None:
    """
    Raises:
        RefusedError: if *policy* wants what cannot be at a service.
    """
    if policy.project or policy.mounts:
        raise RefusedError(
            "a sandbox at the service sees no folder of this machine but a copy of its workspace.",
            hint="Leave out the project and the mounts, or take the sandbox `jail`.",
        )


def _hosts(policy: Policy) -> tuple[str, ...]:
    """Whom the service lets it reach.

    Raises:
        UsageError: if what *policy* says is no list of hosts.
        RefusedError: if the service cannot hold to it.
    """
    entries = allowlist(policy.hosts)
    for entry in entries:
        if entry.port or entry.private:
            raise RefusedError(
                f"{entry.name!r} cannot be allowed at the service for one port, or in a private network."
            )
    return tuple(sorted({entry.name for entry in entries}))


def _who(runtime: Runtime) -> tuple[object, ...]:
    return (runtime.pid, runtime.started, runtime.boot, runtime.remote)


def _remote(runtime: Runtime | None) -> tuple[str, ...]:
    return (runtime.remote,) if runtime is not None and runtime.remote else ()
