"""The tier `e2b`: a sandbox is a microVM at a service, reached by its id, paused there with its memory.

This machine has a relay for each (`remote_guest/relay.py`), which joins each client of its socket to the guest program,
and a copy of its workspace. A record here, and a name at the service, assign sandboxes to sessions: so a sandbox whose
record was lost is found again, and one that the service no longer has is reported as gone.
"""

import hashlib
import importlib.util
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from kasmon.errors import ExtraMissingError, KasmonError, RefusedError, SandboxError, SnapshotRefusedError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker, SnapshotVerdict
from kasmon.paths import Paths, user_paths
from kasmon.sandbox.agent.credential_files import AT_A_SERVICE, keeps_memory
from kasmon.sandbox.base import PauseResult, TierProbe, UnavailableReason
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.guest_setup import GuestFolder, fetch_folders, set_up_guest
from kasmon.sandbox.e2b.records import E2bRecord, E2bRecords, check_policy, find_widened_hosts
from kasmon.sandbox.e2b.records import hosts as hosts_of
from kasmon.sandbox.e2b.relay import E2bPorts
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.remote_guest import relay
from kasmon.sandbox.remote_guest.folder_sync import FolderSync
from kasmon.sandbox.remote_guest.launch_spec import BIN, ProgramLaunch, wrap_program
from kasmon.sandbox.shared.cleanup import clearing, or_nothing
from kasmon.sandbox.shared.filesystem_view import BASE, own_variables
from kasmon.sandbox.shared.guest_paths import HOME, PATH, WORKSPACE
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.safe_tree import remove_tree

TRANSPORT: Final = "kasmon.sandbox.e2b.relay"
TIMEOUT_S: Final = 1200
"""The service itself pauses one unused for so long: longer than kasmon waits, so only if kasmon has stopped."""
PROLONG_S: Final = 240.0
"""Interval at which the timeout is extended during a run."""
SIZED: Final = "its CPU, memory and disk come from its template at the service, not from its size"
COPIED: Final = (
    "changes in its folder here are copied in before a run or prompt, and its own changes are copied out after it"
)
DROPPED_PREFIXES: Final = ("LC_", "E2B_")
"""Prefixes of variables left out: locales, which a template mostly lacks, and those for reaching the service."""


class E2b:
    """The sandboxes of one kasmon at the service. The constructor touches no file."""

    tier: Tier = "e2b"
    keeps_memory = True
    is_elsewhere: Literal[True] = True

    def __init__(
        self,
        of: Paths | None = None,
        *,
        access: service.ServiceAccess | None = None,
        timeout_s: int = TIMEOUT_S,
        prolong_s: float = PROLONG_S,
    ) -> None:
        """
        Args:
            of: the kasmon's paths; by default those of the environment.
            access: to the service; by default from the environment.
            timeout_s: seconds without use after which the service itself pauses a sandbox.
            prolong_s: interval at which the timeout is extended during a run, in seconds.
        """
        self.paths = of or user_paths()
        self.host_folders = HostFolders(self.paths)
        """The folders of each session's sandbox on this machine."""
        self.host_folders.base = self.paths.state / "e2b"
        self.host_folders.owner = (os.geteuid(), os.getegid())
        self._records = E2bRecords(self.host_folders)
        self._access, self._timeout_s, self._prolong_s = access, timeout_s, prolong_s

    def add_access(self, variables: Mapping[str, str], /) -> None:
        """Take the service's key from *variables*, if they have one; the environment's own key has precedence."""
        service.add_access(variables)

    def probe(self) -> TierProbe:
        """Ask the service for a list; no sandbox is created for that, since they cost money."""
        started = time.monotonic()
        try:
            service.find_named(self.access(), self._name(SessionId("probe")))
        except ExtraMissingError as error:
            return TierProbe(tier="e2b", ok=False, why="the SDK is not installed", hint=error.hint)
        except KasmonError as error:
            return TierProbe(tier="e2b", ok=False, why=error.message.rstrip("."), hint=error.hint)
        return TierProbe(
            tier="e2b",
            ok=True,
            why="its files and memory are at the service; no sandbox was created to test it",
            measured_ms=(time.monotonic() - started) * 1000,
        )

    def missing(self) -> UnavailableReason | None:
        """Return which requirement is absent, without a call of the service; None where none is."""
        try:
            self.access()
        except KasmonError as error:
            return UnavailableReason("no API key for the service is set", error.hint)
        if importlib.util.find_spec("e2b") is None:
            return UnavailableReason(
                "the SDK is not installed", ExtraMissingError("a sandbox at the service", "e2b").hint
            )
        return None

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """The folder of this machine that is synchronized with `/workspace` inside."""
        return str(self.host_folders.workspace(policy))

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Create it. Raises `RefusedError` if its policy requires what a service cannot provide."""
        return self._create(policy, E2bRecord(attempt=secrets.token_hex(16)))

    def create_for_agent(self, policy: SandboxPolicy, program_launch: ProgramLaunch, /) -> SandboxRuntime:
        """Do as `create`, with its home synchronized too. Its memory is stored nowhere if it got secrets."""
        return self._create(policy, E2bRecord(attempt=secrets.token_hex(16), has_home=True, keeps=keeps_memory(policy)))

    def _create(self, policy: SandboxPolicy, record: E2bRecord) -> SandboxRuntime:
        check_policy(policy)
        access = self.access()
        if (known := self._records.of(policy)) is not None and known.runtime is not None:
            raise SandboxError(f"cannot create a sandbox for {policy.session!r}", "it already has one")
        record = msgspec.structs.replace(record, hosts=hosts_of(policy))
        # `destroy` finds it by name, where it has no id yet.
        with or_nothing(lambda: self.destroy(policy, None), "cannot create a sandbox"):
            self._make_folders(policy)
            self._records.write(policy, record)
            name, template, timeout_s = self._name(policy.session), policy.template, self._timeout_s
            vm = service.create(access, template, timeout_s, name, record.hosts, record.attempt, keeps=record.keeps)
            set_up_guest(vm, self._folders(policy, record))
            runtime = self._start_relay(policy, record, access, vm.sandbox_id)
            self._records.write(policy, msgspec.structs.replace(record, runtime=runtime))
            return runtime

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether *runtime* is still the recorded sandbox, and the service has it."""
        record = self._records.of(policy)
        if record is None or record.runtime is None or _identity(record.runtime) != _identity(runtime):
            return False
        if not relay.is_there(runtime) and record.paused_at is None:
            return False
        return bool(service.state(self.access(), runtime.remote))

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Reconnect to *policy*'s sandbox at the service; None where the service has none, or kasmon paused it."""
        record = self._records.of(policy)
        if record is None or record.runtime is None or record.paused_at is not None:
            return None
        access = self.access()
        if not service.state(access, record.runtime.remote):
            return None
        relay.end_relay(record.runtime)
        runtime = self._start_relay(policy, record, access, record.runtime.remote)
        self._records.write(policy, msgspec.structs.replace(record, runtime=runtime))
        return runtime

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        """Return the snapshot at the service of a paused sandbox; the service does not report its size."""
        record = self._records.of(policy)
        if record is None or record.runtime is None or record.paused_at is None:
            return None
        identity, maker = record.runtime.remote, SnapshotMaker(program="e2b")
        return Snapshot(id=identity, session=policy.session, tier="e2b", at=record.paused_at, made_by=maker)

    def check_snapshot(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        """Return the snapshot of `kept`; only the service can decide whether it may be resumed, when asked to."""
        snapshot = self.kept(policy)
        return None if snapshot is None else SnapshotVerdict(snapshot=snapshot)

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a sandbox of its own; raises as `prepare_program`."""
        return wrap_program(self, policy, argv, workdir, variables)

    def prepare_program(
        self, policy: SandboxPolicy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /
    ) -> ProgramLaunch:
        """Return how *argv* is run there: with its template's programs, in a copy of *workdir* at the same path."""
        check_policy(policy)
        hosts_of(policy)
        own = {name: value for name, value in own_variables(variables).items() if not name.startswith(DROPPED_PREFIXES)}
        return ProgramLaunch(
            argv=argv,
            workdir=workdir,
            variables={**BASE, **own, "PATH": f"{BIN}:{PATH}"},
            notices=(f"its program {argv[0]!r} comes from its template at the service",),
            front=self.access().variables(),
        )

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Let the service pause it, with its memory, which it stores whether or not *to_disk* is set.

        Raises:
            UnableError: if its memory may not be stored.
        """
        record, known = self._records.require(policy, runtime.remote)
        if not record.keeps:
            raise UnableError(f"the sandbox of {policy.session!r} is not paused: {AT_A_SERVICE}.")
        relay.end_relay(known)
        if record.has_home:
            self._fetch_folders(policy, record, known)
        service.pause(self.access(), runtime.remote)
        self._records.write(policy, msgspec.structs.replace(record, paused_at=time.time()))
        return PauseResult(held=False, snapshot=runtime.remote)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, paused: PauseResult, /) -> SandboxRuntime:
        """Resume it; one that was not paused runs on."""
        (record, runtime), hosts = self._records.require(policy, paused.snapshot or runtime.remote), hosts_of(policy)
        access = self.access()
        service.connect(access, runtime.remote, self._timeout_s)
        if hosts != record.hosts:
            service.set_hosts(access, runtime.remote, hosts)
        if not relay.is_there(runtime):
            runtime = self._start_relay(policy, record, access, runtime.remote)
        self._records.write(policy, msgspec.structs.replace(record, runtime=runtime, paused_at=None, hosts=hosts))
        return runtime

    def fetch(self, policy: SandboxPolicy, /) -> None:
        """Bring the folders here up to date with it, if it runs; the relay is stopped first."""
        record = self._records.of(policy)
        if record is not None and record.runtime is not None and record.paused_at is None:
            relay.end_relay(record.runtime)
            if service.state(self.access(), record.runtime.remote) == "running":
                self._fetch_folders(policy, record, record.runtime)

    def fork(self, policy: SandboxPolicy, paused: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        """Let the service copy it with its memory for *other*; both are paused after that.

        The service copies only a running sandbox, so it is resumed for that, without a relay, and paused again.

        Raises:
            RefusedError: if *other* requires what a service cannot provide.
        """
        check_policy(other)
        if other.workspace:
            raise RefusedError("a fork of a sandbox at the service gets its own folder.", hint="Leave out the folder.")
        record, access = self._records.of(policy), self.access()
        if record is None or record.runtime is None or record.paused_at is None:
            raise SnapshotRefusedError("it is not paused at the service")
        if (other_record := self._records.of(other)) is not None and other_record.runtime is not None:
            raise SandboxError(f"cannot create a sandbox for {other.session!r}", "it already has one")
        identity = record.runtime.remote
        with or_nothing(lambda: self.forget(other), f"cannot create a sandbox for {other.session!r}"):
            self._make_folders(other)
            self._sync(policy).copy(self._sync(other))
            fresh = E2bRecord(attempt=secrets.token_hex(16), hosts=hosts_of(other), paused_at=time.time())
            self._records.write(other, fresh)
            service.connect(access, identity, self._timeout_s)
            try:
                snapshot = service.create_snapshot(access, identity)
            finally:
                service.pause(access, identity)
            try:
                name = self._name(other.session)
                created = service.create(access, snapshot, self._timeout_s, name, fresh.hosts, fresh.attempt).sandbox_id
                service.pause(access, created)
            finally:
                service.delete_snapshot(access, snapshot)
            self._records.write(
                other, msgspec.structs.replace(fresh, runtime=self._complete_runtime(other, SandboxRuntime(), created))
            )
        return PauseResult(held=False, snapshot=created)

    def allow(self, policy: SandboxPolicy, /) -> None:
        """Let it reach the hosts of *policy* from now on; a paused one, once it is resumed.

        Raises:
            RefusedError: if the service cannot enforce it.
        """
        hosts, record = hosts_of(policy), self._records.of(policy)
        if record is None or record.runtime is None or record.paused_at is not None:
            return
        service.set_hosts(self.access(), record.runtime.remote, hosts)
        self._records.write(policy, msgspec.structs.replace(record, hosts=hosts))

    def denials(self, policy: SandboxPolicy, since: float = 0.0, /) -> tuple[Denial, ...]:
        """Return none: the service does not report refused hosts."""
        return ()

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> E2bPorts:
        """Return a connector to the ports of the sandbox at *runtime*, which is resumed for it."""
        self._records.require(policy, runtime.remote)
        return E2bPorts(self.access(), runtime.remote, self._timeout_s)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove all of it at the service, and all here but its workspace. Idempotent.

        If the service does not confirm that, the record stays, so that it can be tried again.
        """
        record = self._records.of(policy)
        for known in (record.runtime if record else None, runtime):
            relay.end_relay(known)
        if record is not None:
            access = self.access()
            known_id = record.runtime.remote if record.runtime else ""
            for identity in {*service.find_named(access, self._name(policy.session)), known_id} - {""}:
                service.kill(access, identity)
            self._records.remove(policy)

    def forget(self, policy: SandboxPolicy, /) -> str:
        """Remove its files here too; a folder given by the user stays unchanged. Idempotent."""
        self.destroy(policy, None)
        with clearing(f"the sandbox of {policy.session!r}"):
            remove_tree(self.host_folders.of(policy.session))
        return ""

    def access(self) -> service.ServiceAccess:
        """Return the access to the service. Raises `SandboxError` if there is no key for it."""
        if (found := self._access or service.access()) is None:
            raise SandboxError("the service is unavailable", "no API key is set", service.HINT)
        return found

    def _make_folders(self, policy: SandboxPolicy) -> None:
        self.host_folders.make(policy.session)
        if not policy.workspace:
            self.host_folders.own_workspace(policy.session)

    def _sync(self, policy: SandboxPolicy) -> FolderSync:
        return FolderSync(self.workspace(policy), self.host_folders.of(policy.session) / "outside.json")

    def _fetch_folders(self, policy: SandboxPolicy, record: E2bRecord, runtime: SandboxRuntime) -> None:
        fetch_folders(service.connect(self.access(), runtime.remote, self._timeout_s), self._folders(policy, record))

    def _folders(self, policy: SandboxPolicy, record: E2bRecord) -> tuple[GuestFolder, ...]:
        if not record.has_home:
            return (GuestFolder("workspace", WORKSPACE, self._sync(policy)),)
        home = self.host_folders.home(policy.session)
        return (  # agents find their conversations by the workspace's path
            GuestFolder("workspace", self.workspace(policy), self._sync(policy)),
            GuestFolder("home", HOME, FolderSync(str(home), home.with_name("home.json"))),
        )

    def _start_relay(
        self, policy: SandboxPolicy, record: E2bRecord, access: service.ServiceAccess, identity: str
    ) -> SandboxRuntime:
        path = self.paths.runtime / f"{policy.session}.box"
        settings = {
            "access": msgspec.to_builtins(access),
            "remote": identity,
            "folders": [(name, path, *outside.where) for name, path, outside in self._folders(policy, record)],
            "keeps": record.keeps,
            "session_folder": str(self.host_folders.of(policy.session)),
            "volatile": [each.path for each in policy.volatile],
            "names": [name for each in policy.credentials for name in (each.name, *each.aliases)],
            "timeout_s": self._timeout_s,
            "prolong_s": self._prolong_s,
        }
        return self._complete_runtime(policy, relay.start(TRANSPORT, path, settings), identity)

    def _complete_runtime(self, policy: SandboxPolicy, runtime: SandboxRuntime, identity: str) -> SandboxRuntime:
        widened = ", ".join(find_widened_hosts(policy))
        notice = f"the service cannot restrict ports: it may reach {widened} at port 80 too"
        return msgspec.structs.replace(
            runtime,
            remote=identity,
            session_folder=str(self.host_folders.of(policy.session)),
            workspace=self.workspace(policy),
            notices=(SIZED, COPIED, notice) if widened else (SIZED, COPIED),
        )

    def _name(self, session: SessionId) -> str:
        """Its unique name at the service, among all kasmons."""
        whose = os.uname().nodename.encode() + os.fsencode(self.paths.state)
        return f"{hashlib.sha256(whose).hexdigest()[:16]}-{session}"


def _identity(runtime: SandboxRuntime) -> tuple[object, ...]:
    return (runtime.pid, runtime.started, runtime.boot, runtime.remote)
