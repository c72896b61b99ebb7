"""The jail tier: a session's sandbox of namespaces and a seccomp filter around ordinary processes, made by bubblewrap.

It shares this machine's kernel, so it does not protect against kernel exploits. When its first process ends, all
processes inside end. Whether a jail is alive is read from the system: from that process's id, start time and boot id,
and from a lock that it holds on a file in its session folder. The lock also finds a jail that is not recorded yet.
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
from kasmon.sandbox.jail.limits import AGENT_BYTES, build_limit_prefix
from kasmon.sandbox.jail.probe import lacking
from kasmon.sandbox.jail.reports import LIMIT_S, JailReports
from kasmon.sandbox.jail.start import start
from kasmon.sandbox.jail.wrap import WrappedCommand, build_entry
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.shared.cleanup import clearing, remove_session_files
from kasmon.sandbox.shared.filesystem_view import own_variables
from kasmon.sandbox.shared.host_folders import PYTHON
from kasmon.sandbox.shared.processes import started_at
from kasmon.sandbox.shared.program_files import needed

BUILT: Final = "a jail shares this machine's kernel: it does not protect against kernel exploits"
LOOSE: Final = "no control group limits memory and CPU here: each process has its own memory limit"


class Jail(JailReports):
    """Jails of one kasmon. Constructing a `Jail` has no side effects."""

    tier: Tier = "jail"
    keeps_memory = False

    # The `SandboxTier` protocol.

    def probe(self) -> TierProbe:
        """Create a jail, run a program in it that checks its confinement, and end it."""
        if found := lacking(self.program):
            return TierProbe(tier="jail", ok=False, why=found.why, hint=found.hint)
        policy = SandboxPolicy(session=SessionId(f"probe-{os.getpid()}"))
        began = time.monotonic()
        try:
            _, held = self._session_files(policy).make_group(SIZES[policy.size])
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
        """Return the folder of this machine that is `/workspace` inside."""
        return str(self.ground.workspace(policy))

    def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
        """Create the jail; the guest agent answers when this returns.

        Raises:
            SandboxError: if the session has one already, or none can be created. Whatever was begun is removed.
            RefusedError: if the policy names a folder that is not allowed.
        """
        session, files = policy.session, self._session_files(policy)
        if files.first_process() is not None:
            raise SandboxError(f"cannot create a jail for {session!r}", "it already has a running one")
        self._require_available()
        program = shutil.which(self.program) or self.program
        with self._undo_on_error(policy):
            view, notices = self._build_view(policy, WORKSPACE)
            view = self._add_context_files(view, session)
            group, held = self._session_files(policy).make_group(view.size)
            data_bytes = 0 if held.memory else view.size.memory_bytes
            agent = [PYTHON, "-I", "-S", f"{INSIDE}/main.py"]
            init = start(
                program,
                view,
                [*build_limit_prefix(view.size, data_bytes=data_bytes), *_build_proxy_prefix(policy), *agent],
                filter_=seccomp.build_filter(platform.machine()),
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
                proxy_control.bind_to_process(files.gate, init)
            write_private(files.record, msgspec.json.encode(runtime))
        return runtime

    def adopt(self, policy: SandboxPolicy, /) -> SandboxRuntime | None:
        """Return the running jail of *policy*, even if its creator did not record it; None if there is none."""
        try:
            runtime = msgspec.json.decode(self._session_files(policy).record.read_bytes(), type=SandboxRuntime)
        except (OSError, msgspec.MsgspecError):
            return None
        return runtime if self.find(policy, runtime) else None

    def wrap(
        self, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /
    ) -> list[str]:
        """Return the command that runs *argv* in a jail of its own, on the caller's stdin, stdout and terminal.

        The agent's folder has the same path inside and outside, since agents record paths. Its home is the session's
        and outlives each jail (`HostFolders.home`). The jail ends with the thread that starts it: that thread must
        live as long as its process.

        Raises:
            SandboxError: if no jail can be created here.
            RefusedError: if the policy or the agent needs a folder that is not allowed in a jail.
            NotFoundError: if the program does not exist.
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
        """Do as `wrap`, and return notices for the user as well.

        Args:
            policy: as for `wrap`.
            argv: as for `wrap`.
            workdir: as for `wrap`.
            variables: as for `wrap`.
            belongings: kasmon's own files that are mounted inside as well.
            path: folders inside that are searched for programs first.
        """
        self._require_available()
        need = needed(argv[0], variables.get("PATH"))
        with self._undo_on_error(policy, keeps_alive=True):
            own = {**own_variables(variables), "PATH": ":".join([*path, *need.path, PATH])}
            view, notices = self._build_view(policy, workdir, own, need.folders)
            view = msgspec.structs.replace(view, binds=[*view.binds, *belongings])
            group, held = self._session_files(policy).make_group(view.size)
            most = max(view.size.memory_bytes, AGENT_BYTES)
            command = [
                *build_limit_prefix(view.size, data_bytes=0 if held.memory else most),
                *_build_proxy_prefix(policy),
                need.program,
                *argv[1:],
            ]
            whole = build_entry(self.ground, policy, view, command, self.program, group)
        real = next(bind.source for bind in view.binds if bind.target == workdir)
        if not held.memory:
            notices = (
                *notices,
                f"each of the agent's processes may use {most // MIB} MiB: no control group is available here",
            )
        return WrappedCommand(command=whole, notices=notices, workdir=real)

    def pause(
        self, policy: SandboxPolicy, runtime: SandboxRuntime, /, *, to_disk: bool = False, turn: int = 0
    ) -> PauseResult:
        """Stop all processes inside; they keep their memory.

        Raises:
            UnableError: for *to_disk*.
            SandboxError: if the jail has ended, a process does not stop, or the list of those stopped before cannot be
                written; all processes continue.
        """
        if to_disk:
            raise UnableError("a jail cannot save its memory to disk.", hint="Pause it in RAM (`--hold`).")
        self._require_running(policy, runtime)
        files = self._session_files(policy)
        what = f"the jail of {policy.session!r} was not paused"
        try:
            is_asleep = freeze.freeze_jail(runtime.pid, files.group, files.note)
        except OSError as error:
            why = f"who was stopped in it before cannot be noted ({error.strerror or error})"
            raise SandboxError(what, why) from error
        if not is_asleep:
            raise SandboxError(what, "a process in it does not stop")
        return PauseResult(held=True)

    def resume(self, policy: SandboxPolicy, runtime: SandboxRuntime, pause_result: PauseResult, /) -> SandboxRuntime:
        """Continue the jail; its network access is in force before that.

        Raises:
            SandboxError: if the jail has ended.
        """
        self._require_running(policy, runtime)
        files = self._session_files(policy)
        if policy.hosts:
            files.open_gate(policy)
            proxy_control.bind_to_process(files.gate, runtime.pid)
        freeze.unfreeze_jail(runtime.pid, files.group, files.note)
        return runtime

    def destroy(self, policy: SandboxPolicy, runtime: SandboxRuntime | None, /) -> None:
        """Remove its processes, sockets, mounts and files, except for its home and workspace. Idempotent.

        Raises:
            SandboxError: if something is left.
        """
        files = self._session_files(policy)
        files.end(runtime if runtime is not None and self.find(policy, runtime) else None, LIMIT_S)
        with clearing(_label(policy)):
            files.clear()

    def forget(self, policy: SandboxPolicy, /, workdir: str = "") -> str:
        """Remove what a session keeps after `destroy`: its home, and a workspace that kasmon made. Idempotent.

        Returns:
            The path of the copy of its folder, if that is kept since it differs from the original; else "".

        Args:
            policy: as for the others.
            workdir: the folder that it had, if that is not the policy's workspace.

        Raises:
            SandboxError: if something is left.
        """
        self.destroy(policy, None)
        return remove_session_files(self.ground, policy.session, workdir or policy.workspace, _label(policy))


def _label(policy: SandboxPolicy) -> str:
    return f"the jail of {policy.session!r}"


def _build_proxy_prefix(policy: SandboxPolicy) -> list[str]:
    """Return the prefix of a command inside that has network access: a forwarder to the egress proxy."""
    return [PYTHON, "-I", "-S", f"{INSIDE}/proxy_forwarder.py", "--"] if policy.hosts else []
