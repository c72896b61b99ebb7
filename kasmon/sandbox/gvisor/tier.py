"""The tier `gvisor`: a kernel in user space (`runsc`), whose checkpoint is the memory of all that runs on it.

It is there for what can be trusted as much as kasmon itself: it runs as root here, since this program restores a memory
only as root. Whoever reaches the agent inside does so through a relay (`far/relay.py`).
"""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal

from kasmon.boot import boot
from kasmon.errors import KasmonError, SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import SIZES, Policy, Runtime, Tier
from kasmon.model.snapshot import Judged, Maker, Snapshot
from kasmon.paths import Places, places, private_folder
from kasmon.sandbox.base import Probe, Reason, Slept
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.clearing import clearing, forgotten, or_nothing
from kasmon.sandbox.credential import looked_up
from kasmon.sandbox.far import relay
from kasmon.sandbox.far.carrier import led_out
from kasmon.sandbox.far.quarters import BIN, Fitted, wrapped
from kasmon.sandbox.gvisor import bundle, image, weight, writing
from kasmon.sandbox.gvisor.failing import NeverRanError
from kasmon.sandbox.gvisor.image import IMAGE
from kasmon.sandbox.gvisor.lacks import KNOWN, LACKS, lacks_of, told_of
from kasmon.sandbox.gvisor.record import Record, note, noted
from kasmon.sandbox.gvisor.runsc import Runsc
from kasmon.sandbox.jail.arguments import PATH, USER, WORKSPACE, Scene
from kasmon.sandbox.jail.ground import COPY_ENTRIES, Ground, jail_group, jail_user
from kasmon.sandbox.jail.process import gone, lives, send, started_at
from kasmon.sandbox.jail.program import needed
from kasmon.sandbox.jail.scenery import BASE, own_variables, scene
from kasmon.sandbox.jail.tree import copy, raze
from kasmon.sandbox.memory import Memories
from kasmon.sandbox.network import gate
from kasmon.sandbox.network.forwarding import Ports
from kasmon.sandbox.network.outlet import Outlets

WAY: Final = "kasmon.sandbox.gvisor.way"
END_S: Final = 5.0
READY_S: Final = 20.0
NOT_FILES: Final = ("memory", "bundle")
"""Folders of a ground in which nothing lies that is seen inside."""
LIVES: Final = ("running", "paused")


class Gvisor(Outlets):
    """The gVisor sandboxes of one kasmon. Making this touches nothing."""

    tier: Tier = "gvisor"
    keeps_memory = True
    has_own_kernel: Literal[True] = True

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

    def missing(self) -> Reason | None:
        """Why none can be made here, as far as that is seen without trying; None where nothing speaks against it."""
        return self._runsc.lacking()

    @property
    def lacks(self) -> Mapping[str, str]:
        """What it cannot, that the other tiers can: by a name, in words for who makes one."""
        return lacks_of(self._runsc.released())

    def probe(self) -> Probe:
        """Make one, write its memory, go on from that, and end it."""
        if found := self._runsc.lacking():
            return Probe(tier="gvisor", ok=False, why=found.why, hint=found.hint)
        policy = Policy(session=SessionId(f"gvprobe-{os.getpid()}"), tier="gvisor")  # a jail is tried beside it
        began = time.monotonic()
        try:
            runtime = self.create(policy)
            self.resume(policy, runtime, self.pause(policy, runtime, to_disk=True))
        except (KasmonError, OSError) as error:
            return Probe(tier="gvisor", ok=False, why=getattr(error, "message", str(error)).rstrip("."))
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        why = "; ".join((KNOWN, *told_of(self._runsc.released()))).rstrip(".")
        return Probe(tier="gvisor", ok=True, why=why, measured_ms=(time.monotonic() - began) * 1000)

    def program_told(self) -> str:
        """Which program makes them, in words.

        Raises:
            SandboxError: if it does not say what it is.
        """
        return self._runsc.maker().program

    def workspace(self, policy: Policy, /) -> str:
        """The folder of this machine that is `/workspace` inside."""
        return str(self.ground.workspace(policy))

    def create(self, policy: Policy, /) -> Runtime:
        """Make it; the agent inside answers when this returns.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if its policy wants a folder that it cannot have.
        """
        return self._made(policy, WORKSPACE, ())

    def lodge(self, policy: Policy, fitted: Fitted, /) -> Runtime:
        """As `create`, for an agent that works where *fitted* says and sees the programs that it needs.

        Raises:
            SandboxError, RefusedError: as `create`.
        """
        return self._made(policy, fitted.workdir, fitted.programs)

    def _made(self, policy: Policy, workdir: str, programs: Sequence[str]) -> Runtime:
        self._can()
        if self._living(policy)[1]:
            raise SandboxError(f"no sandbox was made for {policy.session!r}", "it has one that lives")
        with self._or_nothing(policy):
            looks, notices = self._scene(policy, workdir, programs)
            bundle.write(self._bundle(policy), looks)
            private_folder(self._runsc.root)
            memories = self._memories(policy)
            memories.moved_on()
            return self._begun(policy, ["run"], (*notices, *LACKS.values(), *told_of(self._runsc.released())))

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
        self._settled(policy)
        identity, pid, _ = self._living(policy)
        if not pid:
            return None
        if (record := self._record(policy)) is not None:
            relay.ended(record.relay)
        return self._reached(policy, identity, pid, record.runtime.notices if record else ())

    def kept(self, policy: Policy, /) -> Snapshot | None:
        """The memory on disk that it can go on from, also where whoever had it written could not note that."""
        self._settled(policy)
        try:
            return self._memories(policy).fit(self._runsc.maker())
        except SandboxError:
            return None

    def judged(self, policy: Policy, /, *, whole: bool = False) -> Judged | None:
        """Its last memory on disk, whether it can go on from that or not."""
        return self._memories(policy).judged(self._maker, whole=whole)

    def wrap(self, policy: Policy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /) -> list[str]:
        """The command that runs *argv* in a sandbox of its own; its folder lies inside where it lies outside.

        Raises:
            SandboxError, RefusedError, NotFoundError: as `fitted`.
        """
        return wrapped(self, policy, argv, workdir, variables)

    def fitted(self, policy: Policy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /) -> Fitted:
        """How *argv* is run there: with this machine's own programs.

        Raises:
            SandboxError: if no sandbox can be made here.
            NotFoundError: if there is no such program.
        """
        self._can()
        need = needed(argv[0], variables.get("PATH"))
        own = {**BASE, **own_variables(variables), "PATH": ":".join([BIN, *need.path, PATH])}
        own |= gate.finding(own) if policy.hosts else {}
        return Fitted(
            argv=(need.program, *argv[1:]),
            workdir=workdir,
            variables=own,
            programs=tuple(map(str, need.folders)),
        )

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
            weight.must_fit(policy.session, runtime.pid, draft.folder)
            try:
                relay.ended(record.relay)  # whom it joins stands inside, and cannot be in a memory
                command = self._runsc.checkpoint(runtime.remote, draft.folder)
                writing.write(draft, command, writing.Written(made_by=maker, turn=turn))
                _clean(policy, draft.folder)
                snapshot = draft.confirm(maker, turn)
                writing.forget(draft)
            except BaseException:
                writing.forget(draft)  # first: whoever goes on from it below is not to be gone on from once more
                self._not_written(policy, draft.folder)
                raise
        if not gone(runtime.pid, runtime.started, END_S):  # runsc ends it behind what it answers
            send(runtime.pid, signal.SIGKILL, runtime.started)
        self._runsc.strike(runtime.remote)
        return Slept(held=False, snapshot=snapshot.id)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        """Let it go on, from its memory on disk where it sleeps there.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from; nothing runs then.
            NeverRanError: if it could not be begun, and nothing ran: that memory may be gone on from as before.
            SandboxError: if it is gone.
        """
        memories = self._memories(policy)
        if slept.held:
            pid, state = self._runsc.state(runtime.remote)
            if state not in LIVES or pid != runtime.pid:
                raise SandboxError(f"the sandbox of {policy.session!r} is gone", "its first process has ended")
            memories.moved_on()
            self._open_gate(policy, pid)
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
        folder, had_gate = memories.path(snapshot, ""), self._gate(policy).exists()
        try:
            again = self._begun(policy, ["restore", "-image-path", str(folder)], runtime.notices)
        except NeverRanError:
            with contextlib.suppress(KasmonError, OSError):
                if self._runsc.cleared(_named(policy), self._bundle(policy)):
                    memories.given_back(snapshot)
            raise
        if not had_gate:
            self._surrounded(policy, again)
        return again

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave no process, socket or memory of it, and of its ground only its home and its workspace. Idempotent.

        Raises:
            SandboxError: if something of it is left.
        """
        if (record := self._record(policy)) is not None:
            relay.ended(record.relay)
        if self._runsc.lacking() is None:
            self._runsc.cleared(_named(policy), self._bundle(policy))
        with clearing(_whose(policy)):
            for kind in ("box", "ports"):
                self.ground.socket(policy.session, kind).unlink(missing_ok=True)
            gate.closed(self._gate(policy))
            self.ground.clear(policy.session)

    def forget(self, policy: Policy, /) -> str:
        """Remove its home and a workspace of our own too. Idempotent.

        Returns:
            Where the copy of its folder lies, which stays, since something in it is otherwise than there; else "".

        Raises:
            SandboxError: if something of it is left.
        """
        self.destroy(policy, None)
        return forgotten(self.ground, policy.session, policy.workspace, _whose(policy))

    def fork(self, policy: Policy, slept: Slept, other: Policy, /) -> Slept:
        """Lay down for *other* the files of *policy*'s sandbox, and the memory that it sleeps in on disk.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from.
            SandboxError: if it could not be copied; nothing of *other* is there then, but for files.
        """
        memories = self._memories(policy)
        snapshot = memories.fit(self._maker())
        with self._or_nothing(other):
            theirs = self.ground.make(other.session)
            for name, folder in self._folders(policy).items():
                raze(theirs / name)
                limit = SIZES[policy.size].disk_bytes
                copy(
                    folder,
                    theirs / name,
                    self.ground.owner,
                    limit_bytes=limit,
                    limit_entries=COPY_ENTRIES,
                    is_exact=True,
                )
            looks, _ = self._scene(other)
            bundle.write(self._bundle(other), looks)
            return Slept(held=False, snapshot=memories.copy_to(self._memories(other), snapshot).id)

    def _folders(self, policy: Policy) -> dict[str, Path]:
        """The folders of this machine that it has as its own, by their names in its ground."""
        ground = self.ground.of(policy.session)
        copies = {path.name: path for path in ground.iterdir() if path.is_dir() and path.name not in NOT_FILES}
        return copies | {"workspace": self.ground.workspace(policy)}

    def _maker(self) -> Maker:
        """
        Raises:
            SandboxError: if nothing here can read a memory.
        """
        self._can()
        return self._runsc.maker()

    def ports(self, policy: Policy, runtime: Runtime, /) -> Ports:
        """The way to the ports of the one that lives at *runtime*: by a process that stands inside for that.

        Raises:
            SandboxError: if it is gone.
        """
        if not self.find(policy, runtime):
            raise SandboxError(f"the sandbox of {policy.session!r} is gone", "its first process has ended")
        return Ports(str(self.ground.socket(policy.session, "ports")))

    def _scene(
        self, policy: Policy, workdir: str = WORKSPACE, programs: Sequence[str] = ()
    ) -> tuple[Scene, tuple[str, ...]]:
        """What it looks like from inside, and what a person should know of it."""
        variables = gate.finding({}) if policy.hosts else {}
        seen = [Path(program) for program in programs]
        return scene(self.ground, policy, workdir, doors={}, variables=variables, programs=seen)

    def _gate(self, policy: Policy) -> Path:
        return self.ground.socket(policy.session, "gate")

    def _gate_owner(self) -> tuple[int, int]:
        return (jail_user(), jail_group())

    def _awake(self, policy: Policy) -> Runtime | None:
        record = self._record(policy)
        return record.runtime if record is not None and self.find(policy, record.runtime) else None

    def _led_out(self, policy: Policy) -> None:
        if policy.hosts:
            try:
                led_out(str(self.ground.socket(policy.session, "ports")), READY_S)
            except OSError as error:
                raise SandboxError(f"the way out of {policy.session!r} could not be opened", str(error)) from error

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
                    break
        self._open_gate(policy, pid)
        self._led_out(policy)
        return runtime

    def _living(self, policy: Policy) -> tuple[str, int, str]:
        """The name, the first process and the state of the one that lives; 0 where none does."""
        for identity in self._runsc.names(_named(policy)) if self._runsc.lacking() is None else ():
            pid, state = self._runsc.state(identity)
            if state in LIVES and self._runsc.plays(pid):  # runsc takes any process of that id for the one it was
                return identity, pid, state
        return "", 0, ""

    def _reached(self, policy: Policy, identity: str, pid: int, notices: Sequence[str]) -> Runtime:
        runtime = self._noted(policy, identity, pid, self._joining(policy, identity), notices)
        self._open_gate(policy, pid)
        if self._runsc.state(identity)[1] == "running":
            self._led_out(policy)
        return runtime

    def _joining(self, policy: Policy, identity: str) -> Runtime:
        given = {
            "root": str(self._runsc.root),
            "program": self._runsc.program,
            "identity": identity,
            "agent": bundle.AGENT,
            "gate": str(gate.socket_in(self._gate(policy))),
        }
        return relay.started(WAY, self._socket(policy), given, ports=self.ground.socket(policy.session, "ports"))

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
        note(self._path(policy), Record(runtime=runtime, relay=joins))
        return runtime

    def _settled(self, policy: Policy) -> None:
        """Let count what was written of its memory to its end though whoever had it written is gone; else nothing."""
        with contextlib.suppress(SandboxError, OSError):
            writing.settle(self._memories(policy), lambda folder: _clean(policy, folder))

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

    def _or_nothing(self, policy: Policy) -> AbstractContextManager[None]:
        """Clear away what was begun where something raises; an error of the system becomes ours."""
        return or_nothing(lambda: self.destroy(policy, None), "no sandbox was made")

    def _memories(self, policy: Policy) -> Memories:
        return Memories(self.ground.of(policy.session) / "memory", policy.session, "gvisor")

    def _bundle(self, policy: Policy) -> Path:
        return self.ground.of(policy.session) / "bundle"

    def _socket(self, policy: Policy) -> Path:
        return self.ground.socket(policy.session)

    def _path(self, policy: Policy) -> Path:
        return self.ground.of(policy.session) / "gvisor.json"

    def _record(self, policy: Policy) -> Record | None:
        return noted(self._path(policy))


def _clean(policy: Policy, folder: Path) -> None:
    """Take the values of credentials out of what was written to *folder*."""
    if policy.credentials:
        image.clean(folder, looked_up(policy.credentials))


def _whose(policy: Policy) -> str:
    return f"the sandbox of {policy.session!r}"


def _named(policy: Policy) -> str:
    """How runsc's names of it begin."""
    return f"{policy.session}-"
