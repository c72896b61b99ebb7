"""The jail: a session's sandbox of namespaces and a seccomp filter around ordinary processes, made by bubblewrap.

It shares the kernel of this machine, so it is no wall against whoever can attack that. Its first process is the whole
of it: nobody inside lives longer. Whether it lives is asked of the system: by that process's id, start time and boot,
and by a lock that it holds on a file of its ground, which tells of a jail that nobody has noted yet.
"""

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import MIB, SIZES, SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import write_private
from kasmon.sandbox.base import PauseResult, TierProbe
from kasmon.sandbox.jail import freeze, seccomp
from kasmon.sandbox.jail.bwrap_arguments import INSIDE, PATH, WORKSPACE, BindMount
from kasmon.sandbox.jail.limits import AGENT_BYTES, limited
from kasmon.sandbox.jail.probe import lacking
from kasmon.sandbox.jail.reports import LIMIT_S, JailReports
from kasmon.sandbox.jail.start import start
from kasmon.sandbox.jail.wrap import WrappedCommand, entry
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.shared.cleanup import clearing, forgotten
from kasmon.sandbox.shared.filesystem_view import own_variables
from kasmon.sandbox.shared.host_folders import PYTHON
from kasmon.sandbox.shared.processes import started_at
from kasmon.sandbox.shared.program_files import needed

BUILT: Final = "a jail shares this machine's kernel: it does not protect against kernel exploits"
LOOSE: Final = "no control group limits memory and CPU here: each process has its own memory limit"


class Jail(JailReports):
    """Jails of one kasmon. Making a `Jail` touches nothing."""

    tier: Tier = "jail"
    keeps_memory = False

    # What a sandbox promises.

    def probe(self) -> TierProbe:
        """Make one, run a program in it that looks around, and end it."""
        if found := lacking(self.program):
            return TierProbe(tier="jail", ok=False, why=found.why, hint=found.hint)
        policy = SandboxPolicy(session=SessionId(f"probe-{os.getpid()}"))
        began = time.monotonic()
        try:
            _, held = self._site(policy).make_group(SIZES[policy.size])
            shown = self.prove_inside(policy)
        except (KasmonError, OSError) as error:
            return TierProbe(
                tier="jail", ok=False, why=getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
            )
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        took_ms = (time.monotonic() - began) * 1000
        known = BUILT if held.memory and held.cpus else f"{BUILT}; {LOOSE}"
        return TierProbe(tier="jail", ok=shown.ok, why="; ".join(shown.mismatches) or known, measured_ms=took_ms)

    def workspace(self, policy: SandboxPolicy, /) -> str:
        """The folder of this machine that is `/workspace` inside."""
        return str(self.ground.workspace(policy))

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Make it; the agent inside answers when this returns.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if the policy names a folder that it cannot have.
        """
        session, site = policy.session, self._site(policy)
        if site.first_process() is not None:
            raise SandboxError(f"cannot create a jail for {session!r}", "it already has a running one")
        self._can()
        program = shutil.which(self.program) or self.program
        with self._or_nothing(policy):
            looks, notices = self._scene(policy, WORKSPACE)
            looks = self._with_place(looks, session)
            group, held = self._site(policy).make_group(looks.size)
            data_bytes = 0 if held.memory else looks.size.memory_bytes
            agent = [PYTHON, "-I", "-S", f"{INSIDE}/main.py"]
            init = start(
                program,
                looks,
                [*limited(looks.size, data_bytes=data_bytes), *_relay(policy), *agent],
                filter_=seccomp.program(platform.machine()),
                owner=self.ground.owner,
                sockets={"KASMON_LISTEN_FD": self.ground.socket(session)},
                take_in=group.take_in if group is not None else lambda _: None,
            )
            runtime = SandboxRuntime(
                pid=init,
                started=started_at(init) or 0.0,
                boot=boot(),
                socket=str(self.ground.socket(session)),
                ground=str(self.ground.of(session)),
                workspace=str(self.ground.workspace(policy)),
                notices=notices,
            )
            if policy.hosts:
                proxy_control.belongs(site.gate, init)
            write_private(site.record, msgspec.json.encode(runtime))
        return runtime

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """The jail of *policy* that lives, also where its maker had no time to note that; None if there is none."""
        try:
            runtime = msgspec.json.decode(self._site(policy).record.read_bytes(), type=SandboxRuntime)
        except (OSError, msgspec.MsgspecError):
            return None
        return runtime if self.find(policy, runtime) else None

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """The command that runs *argv* in a jail of its own, on the caller's stdin, stdout and terminal.

        The agent's folder lies inside where it lies outside, since agents note folders; its home is one of the
        session's own, which outlives each jail (`HostFolders.home`). It ends with the thread that starts it: that must
        be one which lives as long as its process.

        Raises:
            SandboxError: if none can be made here.
            RefusedError: if the policy or the agent needs a folder that a jail cannot have.
            NotFoundError: if there is no such program.
        """
        return self.outfit(policy, argv, workdir, variables).command

    def outfit(
        self,
        policy: SandboxPolicy,
        argv: Sequence[str],
        workdir: str,
        variables: Mapping[str, str],
        *,
        belongings: Sequence[BindMount] = (),
        path: Sequence[str] = (),
    ) -> WrappedCommand:
        """As `wrap`, with what a person should know.

        Args:
            policy: as for `wrap`.
            argv: likewise.
            workdir: likewise.
            variables: likewise.
            belongings: what of kasmon's own is seen inside too.
            path: folders inside that are searched for programs first.
        """
        self._can()
        need = needed(argv[0], variables.get("PATH"))
        with self._or_nothing(policy, keeps_alive=True):
            own = {**own_variables(variables), "PATH": ":".join([*path, *need.path, PATH])}
            looks, notices = self._scene(policy, workdir, own, need.folders)
            looks = msgspec.structs.replace(looks, binds=[*looks.binds, *belongings])
            group, held = self._site(policy).make_group(looks.size)
            most = max(looks.size.memory_bytes, AGENT_BYTES)
            command = [
                *limited(looks.size, data_bytes=0 if held.memory else most),
                *_relay(policy),
                need.program,
                *argv[1:],
            ]
            whole = entry(self.ground, policy, looks, command, self.program, group)
        real = next(bind.source for bind in looks.binds if bind.target == workdir)
        if not held.memory:
            notices = (
                *notices,
                f"each of the agent's processes may use {most // MIB} MiB: no control group is available here",
            )
        return WrappedCommand(command=whole, notices=notices, workdir=real)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop all in it; it keeps its memory.

        Raises:
            UnableError: for *to_disk*.
            SandboxError: if it is gone, a process in it does not stop, or what was stopped before cannot be noted;
                all go on then.
        """
        if to_disk:
            raise UnableError("a jail cannot save its memory to disk.", hint="Pause it in RAM (`--hold`).")
        self._must_live(policy, runtime)
        site = self._site(policy)
        what = f"the jail of {policy.session!r} was not paused"
        try:
            is_asleep = freeze.sleep(runtime.pid, site.group, site.note)
        except OSError as error:
            why = f"who was stopped in it before cannot be noted ({error.strerror or error})"
            raise SandboxError(what, why) from error
        if not is_asleep:
            raise SandboxError(what, "a process in it does not stop")
        return PauseResult(held=True)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult, /) -> SandboxRuntime:
        """Let it go on; what is its way out is in force before that.

        Raises:
            SandboxError: if it is gone.
        """
        self._must_live(policy, runtime)
        site = self._site(policy)
        if policy.hosts:
            site.open_gate(policy)
            proxy_control.belongs(site.gate, runtime.pid)
        freeze.wake(runtime.pid, site.group, site.note)
        return runtime

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Leave no process, socket or mount of it, and of its ground only its home and its workspace. Idempotent.

        Raises:
            SandboxError: if something of it is left.
        """
        site = self._site(policy)
        site.end(runtime if runtime is not None and self.find(policy, runtime) else None, LIMIT_S)
        with clearing(_whose(policy)):
            site.clear()

    def forget(self, policy: SandboxPolicy, /, workdir: str = "") -> str:
        """Remove what is kept of a session whose sandbox is destroyed: its home and a workspace of our own. Idempotent.

        Returns:
            Where the copy of its folder lies, which stays, since something in it is otherwise than there; else "".

        Args:
            policy: as for the others.
            workdir: the folder that it had, where that is not the policy's workspace.

        Raises:
            SandboxError: if something of it is left.
        """
        self.destroy(policy, None)
        return forgotten(self.ground, policy.session, workdir or policy.workspace, _whose(policy))


def _whose(policy: SandboxPolicy) -> str:
    return f"the jail of {policy.session!r}"


def _relay(policy: SandboxPolicy) -> list[str]:
    """What stands in front of a command inside that has a way out: it carries what programs send to their proxy."""
    return [PYTHON, "-I", "-S", f"{INSIDE}/proxy_forwarder.py", "--"] if policy.hosts else []
