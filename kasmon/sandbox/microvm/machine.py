"""The microVM: a session's sandbox with a kernel of its own, which QEMU plays; its memory can be put on disk.

Its disk holds `/workspace` and the home, and its size is their limit. What changes there is mirrored to folders of this
machine, so that it is there whenever an answer is. Neither QEMU nor its door runs as root, and neither can open a file:
both inherit what they need.
"""

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kasmon.errors import KasmonError, RefusedError, SandboxError, SnapshotRefusedError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import SIZES, Policy, Runtime, Tier
from kasmon.model.snapshot import Maker, Snapshot
from kasmon.paths import Places, places, write_private
from kasmon.sandbox.base import Probe, Slept
from kasmon.sandbox.credential import looked_up
from kasmon.sandbox.jail.ground import COPY_ENTRIES, Ground
from kasmon.sandbox.jail.process import lives
from kasmon.sandbox.jail.tree import copy
from kasmon.sandbox.jail.usage import Usage, usage
from kasmon.sandbox.microvm import emulator, hardware
from kasmon.sandbox.microvm.beginning import Means, begin, greet
from kasmon.sandbox.microvm.image import folder_of, found
from kasmon.sandbox.microvm.initrd import LINE, code_hash
from kasmon.sandbox.microvm.lot import Lot
from kasmon.sandbox.microvm.qmp import Orders
from kasmon.sandbox.microvm.starting import asked
from kasmon.sandbox.microvm.stock import MEMORY, Stock
from kasmon.sandbox.scrub import scrubbed

KEEP_S: Final = 60.0
FILL_S: Final = 120.0
LITTLE_BYTES: Final = 1 << 20
"""A disk that has less is taken for full."""
BUILD_HINT: Final = "Build it: `kasmon sandbox image build`."
STARTED: Final = "its machine was started, and not copied from a warm one"


class MicroVm:
    """The machines of one kasmon. Making a `MicroVm` touches nothing."""

    tier: Tier = "microvm"
    keeps_memory = True

    def __init__(self, of: Places | None = None, *, image: Path | None = None, program: str = emulator.PROGRAM) -> None:
        """
        Args:
            of: whose machines; by default those of the kasmon that the environment names.
            image: the folder of the image; by default that of the kasmon which the environment names. What is made from
                it lies beside it.
            program: QEMU, by path or name.
        """
        self.places = of or places()
        self.ground = Ground(self.places)
        self.image_folder = image or folder_of(places())
        self.program = program
        self.accelerator = emulator.EMULATED
        self._line = Ground(self.places, LINE)

    # What a sandbox promises.

    def probe(self) -> Probe:
        """Make a machine, ask it something, and end it."""
        if lack := emulator.lacking(self.program):
            return Probe(tier="microvm", ok=False, why=lack.why, hint=lack.hint)
        if found(self.image_folder) is None:
            return Probe(tier="microvm", ok=False, why="there is no image", hint=BUILD_HINT)
        policy = Policy(session=SessionId(f"vmprobe-{os.getpid()}"), tier="microvm")
        began = time.monotonic()
        try:
            runtime = self.create(policy)
            took_ms = (time.monotonic() - began) * 1000
        except (KasmonError, OSError) as error:
            why, hint = getattr(error, "message", str(error)), getattr(error, "hint", "")
            return Probe(tier="microvm", ok=False, why=why, hint=hint)
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        how = next((notice for notice in runtime.notices if STARTED in notice), "copied from a warm one")
        return Probe(tier="microvm", ok=True, why=f"{how}; emulated, without KVM", measured_ms=took_ms)

    def workspace(self, policy: Policy, /) -> str:
        """The folder of this machine that has what `/workspace` has inside, whenever an answer comes from there."""
        return str(self.ground.workspace(policy))

    def create(self, policy: Policy, /) -> Runtime:
        """Make it: a copy of the warm one, or started; the agent inside answers when this returns. Up to two minutes.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if the policy wants what a machine does not have.
        """
        self._can(policy)
        lot, stock = self._lot(policy), self.stock(policy.size)
        if lot.is_taken():
            raise SandboxError(f"no machine was made for {policy.session!r}", "it has one that lives")
        with self._or_nothing(policy):
            notices = lot.furnish()
            origin = stock.origin(self.made_by)
            why = origin.why
            if origin.memory is not None:
                try:
                    lot.lay(origin.base, stock.nothing)
                    lot.memories.moved_on()
                    self._begin(lot, origin.memory, is_another=True)
                except SandboxError as error:
                    lot.end()
                    origin, why = origin._replace(memory=None), error.message
            if origin.memory is None:
                notices = (*notices, f"{STARTED}: {why}" if why else STARTED)
                lot.lay(stock.plain, stock.nothing)
                lot.memories.moved_on()
                self._begin(lot)
            asked(lot.control, FILL_S, "fill")
            return self._there(lot, notices)

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        """Whether the machine of *runtime* is still that one and lives, asleep or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def adopt(self, policy: Policy, /) -> Runtime | None:
        """The machine of *policy* that lives, also where nobody noted it; None if there is none."""
        return self._lot(policy).runtime()

    def kept(self, policy: Policy, /) -> Snapshot | None:
        """The memory on disk that it can go on from; None where there is none."""
        try:
            return self._lot(policy).memories.fit(self.made_by)
        except (KasmonError, OSError):
            return None

    def wrap(self, policy: Policy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /) -> list[str]:
        """
        Raises:
            UnableError: always: an agent's terminal does not reach into a machine.
        """
        raise UnableError("an agent does not run in a microvm with this version of kasmon.", hint="It does in a jail.")

    def pause(self, policy: Policy, runtime: Runtime, /, *, to_disk: bool = False, turn: int = 0) -> Slept:
        """Stop all in it. *to_disk*: its memory is on disk when this returns, and it has no process.

        Raises:
            SandboxError: if it is gone, or its memory cannot be kept; it can go on then.
        """
        self._must_live(policy, runtime)
        lot = self._lot(policy)
        if not to_disk:
            with Orders(lot.orders) as orders:
                orders.do("stop")
            return Slept(held=True)
        faults = asked(lot.control, KEEP_S, "freeze").get("faults")
        if faults:
            greet(lot)
            why = f"its files could not all be put outside ({'; '.join(map(str, faults))})"
            raise SandboxError(f"the machine of {policy.session!r} was not put to sleep", why)
        with Orders(lot.orders) as orders:
            orders.do("stop")
            with lot.memories.draft() as draft:
                _write(orders, draft.folder / MEMORY)
                _clean(policy, draft.folder / MEMORY)
                snapshot = draft.confirm(self.made_by, turn)
        lot.end(runtime)
        return Slept(held=False, snapshot=snapshot.id)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        """Let it go on, its clock set; from its memory on disk once, and only over the disk that belongs to that.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from; nothing runs then.
            SandboxError: if it is gone, or does not go on.
        """
        lot = self._lot(policy)
        if slept.held:
            self._must_live(policy, runtime)
            lot.memories.moved_on()
            with Orders(lot.orders) as orders:
                orders.do("cont")
            greet(lot)
            return runtime
        if lot.is_taken():
            raise SandboxError(f"the machine of {policy.session!r} was not resumed", "it has one that lives")
        snapshot = lot.memories.fit(self.made_by)
        if slept.snapshot and slept.snapshot != snapshot.id:
            raise SnapshotRefusedError(f"another one counts: {snapshot.id}, and not {slept.snapshot}")
        try:
            self._begin(
                lot,
                lot.memories.path(snapshot, MEMORY),
                lambda: lot.memories.used(snapshot),
                is_another=lot.copied.exists(),
            )
            lot.copied.unlink(missing_ok=True)
            return self._there(lot)
        except BaseException as error:
            with contextlib.suppress(KasmonError):
                lot.end()
            if isinstance(error, OSError):
                raise SandboxError(f"the machine of {policy.session!r} was not resumed", str(error)) from error
            raise

    def fork(self, policy: Policy, slept: Slept, other: Policy, /) -> Slept:
        """Copy the disk and the memory of a machine that sleeps on disk for *other*, with what is mirrored of it.

        Raises:
            SnapshotRefusedError: if that memory may not be gone on from.
            SandboxError: if it could not be copied; nothing of *other* is there then.
        """
        lot, theirs = self._lot(policy), self._lot(other)
        snapshot = lot.memories.fit(self.made_by)
        limit = SIZES[policy.size].disk_bytes
        with self._or_nothing(other):
            theirs.furnish()
            theirs.lay(lot.base, lot.disk)
            for name, folder in lot.trees.items():
                if folder != theirs.trees[name]:
                    theirs.trees[name].rmdir()
                    copy(folder, theirs.trees[name], self.ground.owner, limit_bytes=limit, limit_entries=COPY_ENTRIES)
            write_private(theirs.copied, b"")
            return Slept(held=False, snapshot=lot.memories.copy_to(theirs.memories, snapshot).id)

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave no process, socket, disk or memory of it; what was mirrored of it stays. Idempotent.

        Raises:
            SandboxError: if something of it is left.
        """
        self._lot(policy).end(runtime if runtime is not None and self.find(policy, runtime) else None)
        self._clear(policy, ("home", "workspace"))

    def forget(self, policy: Policy, /) -> str:
        """Remove what is kept of a session whose sandbox is destroyed: its home and a workspace of our own. Idempotent.

        Returns:
            Where the copy of its folder lies, which stays, since something in it is otherwise than there; else "".

        Raises:
            SandboxError: if something of it is left.
        """
        self.destroy(policy, None)
        kept = self.ground.kept_copy(policy.session, policy.workspace)
        self._clear(policy, ("workspace",) if kept else ())
        return str(kept) if kept else ""

    def usage(self, policy: Policy, runtime: Runtime, /) -> Usage:
        """What it uses of this machine: QEMU's memory, and the files that are mirrored of it; beside what it may."""
        return usage(runtime.pid, tuple(self._lot(policy).trees.values()), SIZES[policy.size])

    # What a machine is made from.

    @functools.cached_property
    def means(self) -> Means:
        """
        Raises:
            SandboxError: if there is no image.
        """
        image = found(self.image_folder)
        if image is None:
            raise SandboxError("no machine can be made", "there is no image", BUILD_HINT)
        return Means(program=self.program, accelerator=self.accelerator, folder=self.image_folder, image=image)

    @functools.cached_property
    def made_by(self) -> Maker:
        """What a memory is written and read by; only the same can read it."""
        whole = hashlib.sha256(f"{self.means.image.id} {code_hash()} {hardware.QUIET}".encode())
        return Maker(
            program=f"qemu {emulator.version(self.program)}",
            machine=hardware.MACHINE,
            cpu=f"{hardware.CPU} {self.accelerator}",
            image=whole.hexdigest(),
        )

    def stock(self, size: str) -> Stock:
        """What machines of a size are made from."""
        return Stock(self.image_folder.parent / "machines", SIZES[size])

    def warm(self, policy: Policy, warmed: Callable[[Runtime], None]) -> Snapshot:
        """Start a machine of *policy*, let *warmed* prepare it, and put it away: new ones of its size are copies of it.

        Takes up to a minute. Nothing of the session of *policy* is left.

        Raises:
            SandboxError: if it cannot be started or kept.
        """
        self._can(policy)
        lot, stock = self._lot(policy), self.stock(policy.size)
        try:
            lot.furnish()
            stock.make()
            lot.lay(stock.plain, stock.nothing)
            self._begin(lot)
            warmed(self._there(lot))
            asked(lot.control, KEEP_S, "freeze")
            with Orders(lot.orders) as orders:
                orders.do("stop")
                _write(orders, lot.folder / MEMORY)
            lot.end()
            return stock.put_away(lot.disk, lot.folder / MEMORY, self.made_by)
        except OSError as error:
            raise SandboxError("no warm machine was put away", str(error)) from error
        finally:
            self.forget(policy)

    # Its parts.

    def _begin(
        self,
        lot: Lot,
        memory: Path | None = None,
        loaded: Callable[[], None] = lambda: None,
        *,
        is_another: bool = False,
    ) -> None:
        begin(lot, self.means, self._line.things() / "opt", memory, loaded, is_another=is_another)

    def _there(self, lot: Lot, notices: tuple[str, ...] = ()) -> Runtime:
        runtime = lot.runtime(notices)
        if runtime is None:
            raise SandboxError("the machine did not begin", "it ended at once")
        return runtime

    def _can(self, policy: Policy) -> None:
        """
        Raises:
            SandboxError: if no machine can be made here.
            RefusedError: if the policy wants what a machine does not have.
        """
        if lack := emulator.lacking(self.program):
            raise SandboxError("no machine can be made", lack.why, lack.hint)
        wants = {"a network": policy.hosts, "a project's folder": policy.project, "mounts": policy.mounts}
        if wanted := [what for what, value in wants.items() if value]:
            raise RefusedError(f"a microvm cannot have {', '.join(wanted)} in this version.", hint="A jail can.")

    def _lot(self, policy: Policy) -> Lot:
        return Lot(self.ground, policy)

    def _must_live(self, policy: Policy, runtime: Runtime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the machine of {policy.session!r} is gone", "QEMU has ended")

    def _clear(self, policy: Policy, but: Sequence[str]) -> None:
        try:
            self.ground.clear(policy.session, but)
        except OSError as error:
            raise SandboxError(f"something of the machine of {policy.session!r} is left", str(error)) from error

    @contextlib.contextmanager
    def _or_nothing(self, policy: Policy) -> Iterator[None]:
        """Clear away what was begun where something raises; an error of the system becomes ours."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(KasmonError):
                self.destroy(policy, None)
            if isinstance(error, OSError | ValueError):
                raise SandboxError("no machine was made", str(error)) from error
            raise


def _clean(policy: Policy, path: Path) -> None:
    """Take out of the memory at *path* what is left of the values of credentials: node gives nothing back clean."""
    if not policy.credentials:
        return
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        scrubbed(memory, looked_up(policy.credentials))


def _write(orders: Orders, path: Path) -> None:
    """Have the memory of a machine that is stopped written to *path*.

    Raises:
        OSError: if the disk cannot hold it.
        SandboxError: if it cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        orders.do("migrate-set-parameters", words={"max-bandwidth": 1 << 40})
        orders.do("getfd", [handle], fdname="memory")
        orders.do("migrate", uri="fd:memory")
        orders.moved(KEEP_S)
    except SandboxError as error:
        if os.fstatvfs(handle).f_bavail * os.fstatvfs(handle).f_frsize < LITTLE_BYTES:
            raise OSError(errno.ENOSPC, error.message) from error
        raise
    finally:
        os.close(handle)
