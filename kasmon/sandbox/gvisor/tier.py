"""The tier `gvisor`: a kernel in user space (`runsc`), whose checkpoint is the memory of all that runs on it.

It is there for what can be trusted as much as kasmon itself: it runs as root here, since this program restores a memory
only as root. Whoever reaches the agent inside does so through a relay (`far/relay.py`).
"""

import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import psutil

from kasmon.boot import boot
from kasmon.errors import KasmonError, RefusedError, SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import MIB, Policy, Runtime, Tier
from kasmon.model.snapshot import Snapshot
from kasmon.paths import Places, places, private_folder, write_private
from kasmon.sandbox.base import Probe, Slept
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.credential import looked_up
from kasmon.sandbox.far import relay
from kasmon.sandbox.gvisor import bundle, image
from kasmon.sandbox.gvisor.runsc import Runsc
from kasmon.sandbox.jail.arguments import USER, WORKSPACE
from kasmon.sandbox.jail.ground import Ground
from kasmon.sandbox.jail.process import gone, lives, send, started_at, tree
from kasmon.sandbox.jail.scenery import scene
from kasmon.sandbox.memory import Memories

WAY: Final = "kasmon.sandbox.gvisor.way"
LACKS: Final = (
    "the gVisor of Debian 12 knows too little of `statx`: `ls` and `stat` fail in it; shells and Python do not"
)
END_S: Final = 5.0
READY_S: Final = 20.0
LIVES: Final = ("running", "paused")
IMAGE: Final = "checkpoint.img"
KNOWN: Final = (
    "its kernel is its own, and runs as root here; nothing limits the memory of all its processes together, and nobody"
    " in it reaches the network"
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine knows of one session's sandbox."""

    runtime: Runtime
    """Where it lives; its `remote` is the name by which runsc knows it, another one at each start."""
    relay: Runtime


class Gvisor:
    """The gVisor sandboxes of one kasmon. Making this touches nothing."""

    tier: Tier = "gvisor"
    keeps_memory = True

    def __init__(self, of: Places | None = None, *, program: str = "") -> None:
        """
        Args:
            of: whose; by default those of the kasmon that the environment names.
            program: gVisor's, by path or name; by default what KASMON_RUNSC names, else `runsc`.
        """
        program = program or os.environ.get("KASMON_RUNSC") or "runsc"
        self.places = of or places()
        self.ground = Ground(self.places)
        self.ground.base = self.ground.base.with_name(f"{self.ground.base.name}-gvisor")
        self.ground.owner = (USER, USER)  # this kernel knows no other numbers inside than outside
        self._runsc = Runsc(self.ground.base / ".runsc", program)

    def probe(self) -> Probe:
        """Make one, write its memory, go on from that, and end it."""
        if found := self._runsc.lacking():
            return Probe(tier="gvisor", ok=False, why=found.why, hint=found.hint)
        policy = Policy(session=SessionId(f"probe-{os.getpid()}"), tier="gvisor")
        began = time.monotonic()
        try:
            runtime = self.create(policy)
            self.resume(policy, runtime, self.pause(policy, runtime, to_disk=True))
        except (KasmonError, OSError) as error:
            return Probe(tier="gvisor", ok=False, why=getattr(error, "message", str(error)).rstrip("."))
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        return Probe(tier="gvisor", ok=True, why=KNOWN, measured_ms=(time.monotonic() - began) * 1000)

    def workspace(self, policy: Policy, /) -> str:
        """The folder of this machine that is `/workspace` inside."""
        return str(self.ground.workspace(policy))

    def create(self, policy: Policy, /) -> Runtime:
        """Make it; the agent inside answers when this returns.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if its policy wants a network, or a folder that it cannot have.
        """
        self._can()
        if policy.hosts:
            raise RefusedError("nobody in a gVisor sandbox reaches the network.", hint="Take `jail`, or allow nobody.")
        if self._living(policy)[1]:
            raise SandboxError(f"no sandbox was made for {policy.session!r}", "it has one that lives")
        with self._or_nothing(policy):
            looks, notices = scene(self.ground, policy, WORKSPACE, doors={}, variables={})
            bundle.write(self._bundle(policy), looks)
            private_folder(self._runsc.root)
            memories = self._memories(policy)
            memories.moved_on()
            return self._begun(policy, ["run"], (*notices, LACKS) if self._runsc.is_old() else notices)

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        """Whether it is still that one and lives, asleep or not, and can be reached."""
        record = self._record(policy)
        return (
            lives(runtime.pid, runtime.started, runtime.boot)
            and record is not None
            and record.runtime.pid == runtime.pid
            and relay.is_there(record.relay)
        )

    def adopt(self, policy: Policy, /) -> Runtime | None:
        """The one of *policy* that lives, also where nobody noted it, reached anew."""
        identity, pid, _ = self._living(policy)
        if not pid:
            return None
        if (record := self._record(policy)) is not None:
            relay.ended(record.relay)
        return self._reached(policy, identity, pid, record.runtime.notices if record else ())

    def kept(self, policy: Policy, /) -> Snapshot | None:
        """The memory on disk that it can go on from."""
        try:
            return self._memories(policy).fit(self._runsc.maker())
        except SandboxError:
            return None

    def wrap(self, policy: Policy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /) -> list[str]:
        """
        Raises:
            UnableError: always.
        """
        raise UnableError("no agent runs in a gVisor sandbox: interpreters do.", hint="Take the sandbox `jail`.")

    def pause(self, policy: Policy, runtime: Runtime, /, *, to_disk: bool = False, turn: int = 0) -> Slept:
        """Stop all in it; *to_disk* writes its memory, and ends it.

        Raises:
            SandboxError: if it is gone, or its memory could not be written: it can go on then.
        """
        if not self.find(policy, runtime):
            raise SandboxError(f"the sandbox of {policy.session!r} is gone", "its first process has ended")
        if not to_disk:
            if self._runsc.state(runtime.remote)[1] != "paused":
                self._runsc.call("pause", runtime.remote)
            return Slept(held=True)
        memories, maker = self._memories(policy), self._runsc.maker()
        record = self._record(policy)
        assert record is not None
        with memories.draft() as draft:
            self._must_fit(policy, runtime, draft.folder)
            try:
                relay.ended(record.relay)  # whom it joins stands inside, and cannot be in a memory
                self._runsc.call("checkpoint", "-image-path", str(draft.folder), runtime.remote)
                if policy.credentials:
                    image.clean(draft.folder / IMAGE, looked_up(policy.credentials))
                snapshot = draft.confirm(maker, turn)
            except BaseException:
                self._not_written(policy, draft.folder)
                raise
        if not gone(runtime.pid, runtime.started, END_S):  # runsc ends it behind what it answers
            send(runtime.pid, signal.SIGKILL, runtime.started)
        self._runsc.delete_behind(runtime.remote)
        return Slept(held=False, snapshot=snapshot.id)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        """Let it go on, from its memory on disk where it sleeps there.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from; nothing runs then.
            SandboxError: if it is gone.
        """
        memories = self._memories(policy)
        if slept.held:
            pid, state = self._runsc.state(runtime.remote)
            if state not in LIVES or pid != runtime.pid:
                raise SandboxError(f"the sandbox of {policy.session!r} is gone", "its first process has ended")
            memories.moved_on()
            if state == "paused":
                self._runsc.call("resume", runtime.remote)
            record = self._record(policy)
            if record is None or not relay.is_there(record.relay):
                return self._reached(policy, runtime.remote, pid, runtime.notices)
            return runtime
        record = self._record(policy)
        if record is not None and lives(record.runtime.pid, record.runtime.started, record.runtime.boot):
            raise SandboxError(f"the sandbox of {policy.session!r} is not resumed", "it lives already")
        snapshot = memories.fit(self._runsc.maker())
        memories.used(snapshot)
        folder = memories.path(snapshot, "")
        return self._begun(policy, ["restore", "-image-path", str(folder)], runtime.notices)

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave no process, socket or memory of it, and of its ground only its home and its workspace. Idempotent.

        Raises:
            SandboxError: if something of it is left.
        """
        if (record := self._record(policy)) is not None:
            relay.ended(record.relay)
        if self._runsc.lacking() is None:
            for identity in self._runsc.names(_named(policy)):
                self._runsc.delete(identity)
        try:
            self._socket(policy).unlink(missing_ok=True)
            self.ground.clear(policy.session)
        except OSError as error:
            raise SandboxError(f"something of the sandbox of {policy.session!r} is left", str(error)) from error

    def forget(self, policy: Policy, /) -> str:
        """Remove its home and a workspace of our own too. Idempotent.

        Returns:
            Where the copy of its folder lies, which stays, since something in it is otherwise than there; else "".

        Raises:
            SandboxError: if something of it is left.
        """
        self.destroy(policy, None)
        kept = self.ground.kept_copy(policy.session, policy.workspace)
        try:
            self.ground.clear(policy.session, ("workspace",) if kept else ())
        except OSError as error:
            raise SandboxError(f"something of the sandbox of {policy.session!r} is left", str(error)) from error
        return str(kept) if kept else ""

    def fork(self, policy: Policy, slept: Slept, other: Policy, /) -> Slept:
        """Lay down for *other* the memory that *policy*'s sandbox sleeps in on disk; both have the files they have.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from.
            SandboxError: if it could not be copied.
        """
        memories = self._memories(policy)
        snapshot = memories.fit(self._runsc.maker())
        looks, _ = scene(self.ground, other, WORKSPACE, doors={}, variables={})
        bundle.write(self._bundle(other), looks)
        copied = memories.copy_to(self._memories(other), snapshot)
        return Slept(held=False, snapshot=copied.id)

    def _can(self) -> None:
        if found := self._runsc.lacking():
            raise SandboxError("no gVisor sandbox can be made", found.why, found.hint)

    def _begun(self, policy: Policy, verb: Sequence[str], notices: Sequence[str]) -> Runtime:
        """Run or restore it, and wait until the agent inside answers."""
        identity = f"{_named(policy)}{secrets.token_hex(4)}"
        with ThreadPoolExecutor(1) as pool:
            joins = pool.submit(self._joining, policy, identity)
            try:
                pid = self._runsc.begin(verb, self._bundle(policy), identity, self.ground.of(policy.session))
            except BaseException:
                relay.ended(joins.result())
                raise
        runtime = self._noted(policy, identity, pid, joins.result(), notices)
        until = time.monotonic() + READY_S
        with contextlib.closing(Channel(runtime.socket)) as inside:
            while True:
                try:
                    inside.ping(verb[0])
                except KasmonError:
                    if time.monotonic() > until or not lives(runtime.pid, runtime.started, runtime.boot):
                        raise
                else:
                    return runtime

    def _living(self, policy: Policy) -> tuple[str, int, str]:
        """The name, the first process and the state of the one that lives; 0 where none does."""
        for identity in self._runsc.names(_named(policy)) if self._runsc.lacking() is None else ():
            pid, state = self._runsc.state(identity)
            if pid and state in LIVES:
                return identity, pid, state
        return "", 0, ""

    def _reached(self, policy: Policy, identity: str, pid: int, notices: Sequence[str]) -> Runtime:
        return self._noted(policy, identity, pid, self._joining(policy, identity), notices)

    def _joining(self, policy: Policy, identity: str) -> Runtime:
        given = {"root": str(self._runsc.root), "identity": identity, "agent": bundle.AGENT}
        return relay.started(WAY, self._socket(policy), given)

    def _noted(self, policy: Policy, identity: str, pid: int, joins: Runtime, notices: Sequence[str]) -> Runtime:
        runtime = Runtime(
            pid=pid,
            started=started_at(pid) or 0.0,
            boot=boot(),
            socket=joins.socket,
            remote=identity,
            ground=str(self.ground.of(policy.session)),
            workspace=self.workspace(policy),
            notices=tuple(notices),
        )
        record = Record(runtime=runtime, relay=joins)
        write_private(self._path(policy), msgspec.json.encode(record))
        return runtime

    def _must_fit(self, policy: Policy, runtime: Runtime, folder: Path) -> None:
        """
        Raises:
            SandboxError: if its memory may not fit there: one whose memory could not be written whole is gone.
        """
        wanted = sum(map(_resident, tree(runtime.pid)))
        free = shutil.disk_usage(folder).free
        if free < wanted:
            why = f"it may take {wanted // MIB} MiB, and the disk has {free // MIB} MiB left"
            raise SandboxError(f"the memory of {policy.session!r} was not kept", why)

    def _not_written(self, policy: Policy, folder: Path) -> None:
        """Let it go on after its memory was not kept: it was ended once all of it was written, and not before."""
        identity, pid, _ = self._living(policy)
        record = self._record(policy)
        notices = record.runtime.notices if record else ()
        with contextlib.suppress(KasmonError):
            if pid:
                self._reached(policy, identity, pid, notices)
            elif (folder / IMAGE).exists():
                self._begun(policy, ["restore", "-image-path", str(folder)], notices)

    @contextlib.contextmanager
    def _or_nothing(self, policy: Policy):  # type: ignore[no-untyped-def]
        """Clear away what was begun where something raises; an error of the system becomes ours."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(KasmonError):
                self.destroy(policy, None)
            if isinstance(error, OSError | ValueError):
                raise SandboxError("no sandbox was made", str(error)) from error
            raise

    def _memories(self, policy: Policy) -> Memories:
        return Memories(self.ground.of(policy.session) / "memory", policy.session, "gvisor")

    def _bundle(self, policy: Policy) -> Path:
        return self.ground.of(policy.session) / "bundle"

    def _socket(self, policy: Policy) -> Path:
        return self.ground.socket(policy.session)

    def _path(self, policy: Policy) -> Path:
        return self.ground.of(policy.session) / "gvisor.json"

    def _record(self, policy: Policy) -> Record | None:
        try:
            return msgspec.json.decode(self._path(policy).read_bytes(), type=Record)
        except (OSError, msgspec.MsgspecError):
            return None


def _resident(pid: int) -> int:
    """The memory that process *pid* has here, in bytes; what it shares counts."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _named(policy: Policy) -> str:
    """How runsc's names of it begin."""
    return f"{policy.session}-"
