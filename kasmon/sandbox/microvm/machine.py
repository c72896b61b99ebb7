"""The microvm tier: a session's sandbox with its own kernel, run by QEMU; its memory can be saved to disk.

Its disk holds `/workspace` and the home, and limits their size. Changes there are mirrored to folders of this machine,
before a run's result is passed on. Neither QEMU nor its host end runs as root, and neither can open a file: both
inherit what they need.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal

from kasmon.errors import KasmonError, SandboxError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, SandboxRuntime, Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotVerdict
from kasmon.paths import write_private
from kasmon.sandbox.base import PauseResult, TierProbe
from kasmon.sandbox.jail.bwrap_arguments import PATH, WORKSPACE
from kasmon.sandbox.jail.usage import JailUsage, usage
from kasmon.sandbox.microvm import program_disks, warm_up
from kasmon.sandbox.microvm.boot import greet
from kasmon.sandbox.microvm.provisioning import KEEP_S, VmProvisioning
from kasmon.sandbox.microvm.qmp import QmpClient
from kasmon.sandbox.microvm.session_files import VmFiles
from kasmon.sandbox.microvm.snapshot_writer import cleaned, written
from kasmon.sandbox.microvm.start import asked
from kasmon.sandbox.microvm.warm_pool import MEMORY
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.port_forward import ListenerConnector
from kasmon.sandbox.network.tunnelled_egress import TunnelledEgress
from kasmon.sandbox.remote_guest.launch_spec import BIN, FittedProgram, wrapped
from kasmon.sandbox.shared.cleanup import clearing, forgotten, or_nothing
from kasmon.sandbox.shared.filesystem_view import BASE, own_variables
from kasmon.sandbox.shared.host_folders import COPY_ENTRIES
from kasmon.sandbox.shared.processes import lives
from kasmon.sandbox.shared.safe_tree import copy, raze

FILL_S: Final = 120.0
COPIED: Final = "its program is a copy, made when its machine was created"
STARTED: Final = "its machine was booted, not copied from a warm one"


class MicroVm(VmProvisioning, TunnelledEgress):
    """The machines of one kasmon. Constructing a `MicroVm` has no side effects."""

    tier: Tier = "microvm"
    keeps_memory = True
    has_own_kernel: Literal[True] = True

    # The `SandboxTier` protocol.

    def probe(self) -> TierProbe:
        """Create a machine, send it a request, and end it."""
        if lack := self.missing():
            return TierProbe(tier="microvm", ok=False, why=lack.why, hint=lack.hint)
        policy = SandboxPolicy(session=SessionId(f"vmprobe-{os.getpid()}"), tier="microvm")
        began = time.monotonic()
        try:
            runtime = self.create(policy)
            took_ms = (time.monotonic() - began) * 1000
        except (KasmonError, OSError) as error:
            why, hint = getattr(error, "message", str(error)), getattr(error, "hint", "")
            return TierProbe(tier="microvm", ok=False, why=why, hint=hint)
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        how = next((notice for notice in runtime.notices if STARTED in notice), "copied from a warm one")
        return TierProbe(tier="microvm", ok=True, why=f"{how}; {self.carried()}", measured_ms=took_ms)

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """Return the folder of this machine that mirrors `/workspace`, up to date whenever a result arrives."""
        return str(self.ground.workspace(policy))

    def create(self, policy: SandboxPolicy, /, *, is_copy: bool = True) -> SandboxRuntime:
        """Create it, as a copy of the warm machine or booted; the guest agent answers then. Takes up to two minutes.

        Without *is_copy* it is always booted.

        Raises:
            SandboxError: if the session has one already, or none can be created. Whatever was begun is removed.
            RefusedError: if the policy names a folder that a machine cannot mount.
        """
        return self._made(policy, (), is_copy=is_copy)

    def _made(self, policy: SandboxPolicy, parts: Sequence[str], *, is_copy: bool = True) -> SandboxRuntime:
        self._can()
        lot, stock = self._lot(policy), self.stock(policy.size)
        if lot.is_taken():
            raise SandboxError(f"cannot create a machine for {policy.session!r}", "it already has a running one")
        with self._or_nothing(policy):
            notices = lot.furnish()
            lot.carry(self.disks.of(parts) if parts else None)
            self._open_gate(policy)
            origin = stock.origin(self.made_by, is_copy=is_copy)
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
                lot.memories.moved_on()
                notices = (*notices, *self._boot(lot, stock))
                why = self.kept_warm(lot, stock, warm_up.warmed) if is_copy else ""
                notices = (*notices, f"The next machine of this size has to boot too: {why}") if why else notices
                greet(lot, is_another=True)
            runtime = self._there(lot, (*notices, *_filled(lot)))
            self._open_gate(policy, runtime.pid)
            self._surrounded(policy, runtime)
            return runtime

    def find(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> bool:
        """Whether the machine of *runtime* is still the same and alive, paused or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Return the running machine of *policy*, even if it was not recorded; None if there is none."""
        return self._lot(policy).runtime()

    def kept(self, policy: SandboxPolicy, /) -> Snapshot | None:
        """Return the snapshot on disk that it can resume; None if there is none."""
        try:
            return self._lot(policy).memories.fit(self.made_by)
        except (KasmonError, OSError):
            return None

    def judged(self, policy: SandboxPolicy, /, *, whole: bool = False) -> SnapshotVerdict | None:
        """Return its last snapshot on disk, and whether it can be resumed."""
        return self._lot(policy).memories.judged(lambda: self.made_by, whole=whole)

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a machine of its own; *workdir* is `/workspace` there.

        Raises:
            SandboxError, RefusedError, UnableError: as `fitted`.
        """
        return wrapped(self, policy, argv, workdir, variables)

    def fitted(
        self, policy: SandboxPolicy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /
    ) -> FittedProgram:
        """Return how *argv* is run there: with the image's programs, or copies of this machine's if it is elsewhere.

        It runs in `/workspace`, which mirrors *workdir*.

        Raises:
            SandboxError: if no machine can be created here.
            NotFoundError: if the program does not exist.
            RefusedError: if it is too large.
        """
        self._can()
        brought = program_disks.brought(argv, variables)
        known = {**own_variables(variables), **brought.variables}
        own = {name: value for name, value in known.items() if not name.startswith("LC_")}
        own |= proxy_control.finding(own, policy.hosts) if policy.hosts else {}
        return FittedProgram(  # without LC_*: the image has no locales
            argv=brought.argv,
            workdir=WORKSPACE,
            variables={**BASE, **own, "PATH": ":".join([BIN, *brought.path, PATH])},
            programs=brought.parts,
            notices=(
                f"its folder {workdir!r} is /workspace in its machine; changes there are mirrored here",
                *((COPIED,) if brought.parts else ()),
            ),
        )

    def lodge(self, policy: SandboxPolicy, fitted: FittedProgram, /) -> SandboxRuntime:
        """Do as `create`; an agent's programs are in the image, in its home, or on a disk of its machine.

        If that disk does not exist yet, it is made, which takes up to a minute.
        """
        return self._made(policy, fitted.programs)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop it. *to_disk*: its memory is on disk when this returns, and its processes have ended.

        Raises:
            SandboxError: if it has ended, or its memory cannot be stored; it can be resumed then.
        """
        self._must_live(policy, runtime)
        lot = self._lot(policy)
        if not to_disk:
            with QmpClient(lot.orders) as orders:
                orders.do("stop")
            return PauseResult(held=True)
        faults = asked(lot.control, KEEP_S, "freeze").get("faults")
        if faults:
            greet(lot)
            why = f"not all of its files could be copied to this machine ({'; '.join(map(str, faults))})"
            raise SandboxError(f"the machine of {policy.session!r} was not paused", why)
        with QmpClient(lot.orders) as orders:
            orders.do("stop")
            with lot.memories.draft() as draft:
                written(orders, draft.folder / MEMORY)
                cleaned(policy, draft.folder / MEMORY)
                snapshot = draft.confirm(self.made_by, turn)
        read_back = lot.memories.judged(lambda: self.made_by, whole=True)
        if read_back is None or read_back.refused or read_back.snapshot.id != snapshot.id:
            why = read_back.refused if read_back is not None and read_back.refused else "it does not exist"
            raise SandboxError(f"the machine of {policy.session!r} was not paused", f"its memory snapshot: {why}")
        lot.end(runtime)
        return PauseResult(held=False, snapshot=snapshot.id)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, /) -> SandboxRuntime:
        """Resume it and set its clock; from a snapshot on disk only once, and only with the disk that belongs to it.

        Raises:
            SnapshotRefusedError: if that snapshot may not be resumed; nothing runs then.
            SandboxError: if it has ended, or does not resume.
        """
        lot = self._lot(policy)
        if slept.held:
            self._must_live(policy, runtime)
            lot.memories.moved_on()
            self._open_gate(policy, runtime.pid)
            with QmpClient(lot.orders) as orders:
                orders.do("cont")
            greet(lot)
            return runtime
        if lot.is_taken():
            raise SandboxError(f"the machine of {policy.session!r} was not resumed", "it already has a running one")
        snapshot = lot.memories.fit(self.made_by)
        if slept.snapshot and slept.snapshot != snapshot.id:
            raise SnapshotRefusedError(f"the current snapshot is {snapshot.id}, not {slept.snapshot}")
        try:
            had_gate = lot.gate.exists()
            self._open_gate(policy)
            self._begin(
                lot,
                lot.memories.path(snapshot, MEMORY),
                lambda: lot.memories.used(snapshot),
                is_another=lot.copied.exists(),
            )
            lot.copied.unlink(missing_ok=True)
            again = self._there(lot)
            self._open_gate(policy, again.pid)
            if not had_gate:
                self._surrounded(policy, again)
            return again
        except BaseException as error:
            with contextlib.suppress(KasmonError):
                lot.end()
            if isinstance(error, OSError):
                raise SandboxError(f"the machine of {policy.session!r} was not resumed", str(error)) from error
            raise

    def fork(self, policy: SandboxPolicy, slept: PauseResult, other: SandboxPolicy, /) -> PauseResult:
        """Copy the disk, snapshot and mirrored folders of a machine that is paused to disk for *other*.

        Raises:
            SnapshotRefusedError: if that snapshot may not be resumed.
            SandboxError: if it could not be copied; nothing of *other* is left then.
        """
        lot, theirs = self._lot(policy), self._lot(other)
        snapshot = lot.memories.fit(self.made_by)
        limit = SIZES[policy.size].disk_bytes
        with self._or_nothing(other):
            theirs.furnish()
            theirs.lay(lot.base, lot.disk)
            theirs.carry(lot.programs.resolve() if lot.programs.exists() else None)
            for name, folder in lot.trees.items():
                if folder != theirs.trees[name]:
                    raze(theirs.trees[name])
                    copy(folder, theirs.trees[name], self.ground.owner, limit_bytes=limit, limit_entries=COPY_ENTRIES)
            write_private(theirs.copied, b"")
            return PauseResult(held=False, snapshot=lot.memories.copy_to(theirs.memories, snapshot).id)

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets, disks and snapshots; its mirrored folders stay. Idempotent.

        Raises:
            SandboxError: if something is left.
        """
        self._lot(policy).end(runtime if runtime is not None and self.find(policy, runtime) else None)
        proxy_control.closed(self._lot(policy).gate)
        with clearing(_whose(policy)):
            self.ground.clear(policy.session)

    def forget(self, policy: SandboxPolicy, /) -> str:
        """Remove what a session keeps after `destroy`: its home, and a workspace that kasmon made. Idempotent.

        Returns:
            The path of the copy of its folder, if that is kept since it differs from the original; else "".

        Raises:
            SandboxError: if something is left.
        """
        self.destroy(policy, None)
        return forgotten(self.ground, policy.session, policy.workspace, _whose(policy))

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> JailUsage:
        """Return its usage of this machine, with its limits: QEMU's memory, and the size of its mirrored folders."""
        own = self._lot(policy).trees
        return usage(runtime.pid, (own["workspace"], own["home"]), SIZES[policy.size])

    def refresh(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> tuple[str, ...]:
        """Copy changes outside into the machine's folders; return notices for the user.

        If a path changed on both sides, the outside version keeps its name, and the inside version is put beside it.

        Raises:
            SandboxError: if it has ended, or does not answer.
        """
        self._must_live(policy, runtime)
        return _told(asked(self._lot(policy).control, FILL_S, "refresh"))

    def ports(self, policy: SandboxPolicy, runtime: SandboxRuntime, /) -> ListenerConnector:
        """Return a connector to the ports of the machine of *runtime*, over its one connection.

        Raises:
            SandboxError: if it has ended.
        """
        self._must_live(policy, runtime)
        return ListenerConnector(str(self._lot(policy).ports))

    # Its parts.

    def _gate(self, policy: SandboxPolicy) -> Path:
        return self._lot(policy).gate

    def _gate_owner(self) -> tuple[int, int]:
        return self.ground.owner

    def _awake(self, policy: SandboxPolicy) -> SandboxRuntime | None:
        return self._lot(policy).runtime()

    def _led_out(self, policy: SandboxPolicy) -> None:
        if policy.hosts:
            greet(self._lot(policy))

    def _must_live(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the machine of {policy.session!r} has ended", "QEMU has ended")

    def _or_nothing(self, policy: SandboxPolicy) -> AbstractContextManager[None]:
        """Clean up if the block raises; an error of the system becomes a `SandboxError`."""
        return or_nothing(lambda: self.destroy(policy, None), "cannot create a machine")


def _whose(policy: SandboxPolicy) -> str:
    return f"the machine of {policy.session!r}"


def _filled(lot: VmFiles) -> tuple[str, ...]:
    """Copy its files into a new machine; return notices for the user.

    Raises:
        SandboxError: if they do not all fit.
    """
    said = asked(lot.control, FILL_S, "fill")
    if said.get("not_taken"):
        why = "; ".join(map(str, said["not_taken"]))
        raise SandboxError(f"not all files of {lot.policy.session!r} fit into a machine", why)
    return _told(said)


def _told(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notices for the user about copied files, from the host end's answer."""
    left = [
        f"Changes on this machine were not copied in ({each})."
        for each in (*said.get("left", ()), *said.get("not_taken", ()))
    ]
    return (*left, *map(str, said.get("apart", ())))
