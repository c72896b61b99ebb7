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
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot import boot
from kasmon.errors import KasmonError, SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import MIB, SIZES, Policy, Runtime, Tier
from kasmon.paths import Places, places, write_private
from kasmon.sandbox.base import Probe, Slept
from kasmon.sandbox.jail import freeze, proof, seccomp
from kasmon.sandbox.jail.arguments import INSIDE, PATH, PROJECT, USER, WORKSPACE, Bind, Scene
from kasmon.sandbox.jail.ground import PYTHON, Ground
from kasmon.sandbox.jail.limits import AGENT_BYTES, limited
from kasmon.sandbox.jail.probing import lacking
from kasmon.sandbox.jail.process import lives, started_at
from kasmon.sandbox.jail.program import needed
from kasmon.sandbox.jail.proof import Proof, Wanted
from kasmon.sandbox.jail.scenery import own_variables, scene
from kasmon.sandbox.jail.site import Site
from kasmon.sandbox.jail.starting import start
from kasmon.sandbox.jail.usage import Usage, usage
from kasmon.sandbox.jail.wrapping import Outfit, answer, entry
from kasmon.sandbox.network import gate
from kasmon.sandbox.network.denial import Denial

LIMIT_S: Final = 10.0
BUILT: Final = "a jail shares this machine's kernel: it is no wall against an attack on that"
LOOSE: Final = "no control group of ours limits memory and processor here: each process has its own limit of memory"


class Jail:
    """Jails of one kasmon. Making a `Jail` touches nothing."""

    tier: Tier = "jail"
    keeps_memory = False

    def __init__(
        self,
        of: Places | None = None,
        *,
        doors: Mapping[str, str] | None = None,
        inside: Path | None = None,
        program: str = "bwrap",
    ) -> None:
        """
        Args:
            of: whose jails; by default those of the kasmon that the environment names.
            doors: place inside -> socket, or folder of sockets, of this machine that is seen there, read-only.
            inside: the folder of what runs inside; by default kasmon's own.
            program: bubblewrap, by path or name.
        """
        self.places = of or places()
        self.ground = Ground(self.places, inside)
        self.doors = dict(doors or {})
        self.program = program

    # What a sandbox promises.

    def probe(self) -> Probe:
        """Make one, run a program in it that looks around, and end it."""
        if found := lacking(self.program):
            return Probe(tier="jail", ok=False, why=found.why, hint=found.hint)
        policy = Policy(session=SessionId(f"probe-{os.getpid()}"))
        began = time.monotonic()
        try:
            _, held = self._site(policy).make_group(SIZES[policy.size])
            shown = self.prove_inside(policy)
        except (KasmonError, OSError) as error:
            return Probe(
                tier="jail", ok=False, why=getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
            )
        finally:
            with contextlib.suppress(KasmonError):
                self.forget(policy)
        took_ms = (time.monotonic() - began) * 1000
        known = BUILT if held.memory and held.cpus else f"{BUILT}; {LOOSE}"
        return Probe(tier="jail", ok=shown.ok, why="; ".join(shown.mismatches) or known, measured_ms=took_ms)

    def workspace(self, policy: Policy, /) -> str:
        """The folder of this machine that is `/workspace` inside."""
        return str(self.ground.workspace(policy))

    def create(self, policy: Policy, /) -> Runtime:
        """Make it; the agent inside answers when this returns.

        Raises:
            SandboxError: if there is one already, or none can be made. Whatever was begun is gone then.
            RefusedError: if the policy names a folder that it cannot have.
        """
        session, site = policy.session, self._site(policy)
        if site.first_process() is not None:
            raise SandboxError(f"no jail was made for {session!r}", "it has one that lives")
        self._can()
        program = shutil.which(self.program) or self.program
        with self._or_nothing(policy):
            looks, notices = self._scene(policy, WORKSPACE)
            group, held = self._site(policy).make_group(looks.size)
            data_bytes = 0 if held.memory else looks.size.memory_bytes
            agent = [PYTHON, "-I", "-S", f"{INSIDE}/agent.py"]
            init = start(
                program,
                looks,
                [*limited(looks.size, data_bytes=data_bytes), *_relay(policy), *agent],
                filter_=seccomp.program(platform.machine()),
                owner=self.ground.owner,
                sockets={"KASMON_LISTEN_FD": self.ground.socket(session)},
                take_in=group.take_in if group is not None else lambda _: None,
            )
            runtime = Runtime(
                pid=init,
                started=started_at(init) or 0.0,
                boot=boot(),
                socket=str(self.ground.socket(session)),
                ground=str(self.ground.of(session)),
                workspace=str(self.ground.workspace(policy)),
                notices=notices,
            )
            if policy.hosts:
                gate.belongs(site.gate, init)
            write_private(site.record, msgspec.json.encode(runtime))
        return runtime

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        """Whether the jail of *runtime* is still that one and lives, asleep or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def adopt(self, policy: Policy, /) -> Runtime | None:
        """The jail of *policy* that lives, also where its maker had no time to note that; None if there is none."""
        try:
            runtime = msgspec.json.decode(self._site(policy).record.read_bytes(), type=Runtime)
        except (OSError, msgspec.MsgspecError):
            return None
        return runtime if self.find(policy, runtime) else None

    def wrap(self, policy: Policy, argv: Sequence[str], workdir: str, variables: Mapping[str, str], /) -> list[str]:
        """The command that runs *argv* in a jail of its own, on the caller's stdin, stdout and terminal.

        The agent's folder lies inside where it lies outside, since agents note folders; its home is one of the
        session's own, which outlives each jail (`Ground.home`). It ends with the thread that starts it: that is to be
        one which lives as long as its process.

        Raises:
            SandboxError: if none can be made here.
            RefusedError: if the policy or the agent needs a folder that a jail cannot have.
            NotFoundError: if there is no such program.
        """
        return self.outfit(policy, argv, workdir, variables).command

    def outfit(
        self,
        policy: Policy,
        argv: Sequence[str],
        workdir: str,
        variables: Mapping[str, str],
        *,
        belongings: Sequence[Bind] = (),
        path: Sequence[str] = (),
    ) -> Outfit:
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
                f"each of the agent's processes may use {most // MIB} MiB: no control group is ours here",
            )
        return Outfit(command=whole, notices=notices, workdir=real)

    def pause(self, policy: Policy, runtime: Runtime, /, *, to_disk: bool = False) -> Slept:
        """Stop all in it; it keeps its memory.

        Raises:
            UnableError: for *to_disk*.
            SandboxError: if it is gone, or somebody in it does not stop; all go on then.
        """
        if to_disk:
            raise UnableError("a jail cannot keep its memory on disk.", hint="It sleeps in memory, or it ends.")
        self._must_live(policy, runtime)
        site = self._site(policy)
        if not freeze.sleep(runtime.pid, site.group, site.note):
            raise SandboxError(f"the jail of {policy.session!r} was not put to sleep", "somebody in it does not stop")
        return Slept(held=True)

    def resume(self, policy: Policy, runtime: Runtime, slept: Slept, /) -> Runtime:
        """Let it go on; what is its way out is in force before that.

        Raises:
            SandboxError: if it is gone.
        """
        self._must_live(policy, runtime)
        site = self._site(policy)
        if policy.hosts:
            site.open_gate(policy)
            gate.belongs(site.gate, runtime.pid)
        freeze.wake(runtime.pid, site.group, site.note)
        return runtime

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave no process, socket or mount of it, and of its ground only its home and its workspace. Idempotent.

        Raises:
            SandboxError: if something of it is left.
        """
        session, site = policy.session, self._site(policy)
        site.end(runtime if runtime is not None and self.find(policy, runtime) else None, LIMIT_S)
        try:
            site.clear()
        except OSError as error:
            raise SandboxError(f"something of the jail of {session!r} is left", str(error)) from error

    def forget(self, policy: Policy, /, workdir: str = "") -> str:
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
        kept = self.ground.kept_copy(policy.session, workdir or policy.workspace)
        try:
            self.ground.clear(policy.session, ("workspace",) if kept else ())
        except OSError as error:
            raise SandboxError(f"something of the jail of {policy.session!r} is left", str(error)) from error
        return str(kept) if kept else ""

    # What a jail can further say of itself.

    def usage(self, policy: Policy, runtime: Runtime) -> Usage:
        """What it uses, beside what it may."""
        folders = (self.ground.workspace(policy), self.ground.home(policy.session))
        group = self._site(policy).group
        return usage(runtime.pid, folders, SIZES[policy.size], group if group and group.is_there else None)

    def allow(self, policy: Policy) -> None:
        """Let the way out of the jail that lives lead whither *policy* says from now on.

        Raises:
            UnableError: if it was made without one.
            UsageError: if what *policy* says is no list of hosts.
            SandboxError: if its proxy does not answer.
        """
        folder = self._site(policy).gate
        if not gate.found(folder):
            raise UnableError("this sandbox was made without a way out.", hint="The next one of its session has it.")
        gate.allow(folder, policy.hosts)

    def belongs(self, policy: Policy, pid: int) -> None:
        """Let the way out of the jail whose first process is *pid* end with it.

        Raises:
            SandboxError: if no proxy answers, or there is no such process.
        """
        gate.belongs(self._site(policy).gate, pid)

    def refusals(self, policy: Policy, since: float) -> str:
        """Whom it did not reach after *since*, and how that is allowed; empty where nobody was refused."""
        return gate.hint(self._site(policy).gate, since) if policy.hosts else ""

    def denials(self, policy: Policy) -> tuple[Denial, ...]:
        """Whom it did not reach since its way out was made, oldest first; nobody where it may reach nobody."""
        return gate.denials(self._site(policy).gate) if policy.hosts else ()

    def prove(self, policy: Policy, pid: int, *, workdir: str = WORKSPACE, also: Sequence[str] = ()) -> Proof:
        """Whether the jail that *pid* stands in front of, or is in, is as *policy* wants; asked of the kernel, outside.

        *pid* is the pane's program, a jail's first process, or anybody inside, in this machine's numbering. *also*:
        places inside that may be written to beside what *policy* says.

        Raises:
            SandboxError: if it is gone, or may not be looked at.
        """
        wanted = Wanted(writable=[*self._writable(policy, workdir), *also], user=self.ground.owner[0])
        return proof.settled(pid, wanted)

    def prove_inside(self, policy: Policy, *, workdir: str = WORKSPACE) -> Proof:
        """Whether a program in a jail of *policy* sees itself confined as it should be: it is run, and ends.

        Raises:
            SandboxError: if no jail can be made, or the program does not answer.
        """
        with self._or_nothing(policy, keeps_alive=True):
            looks, _ = self._scene(policy, workdir)
            command = [*limited(looks.size, data_bytes=looks.size.memory_bytes), *proof.probe_command()]
            whole = entry(self.ground, policy, looks, command, self.program, None)
        said = proof.told(answer(whole, LIMIT_S))
        wanted = Wanted(writable=self._writable(policy, workdir), user=USER)
        return proof.compare(said, wanted, proof.ours())

    # Its parts.

    def _can(self) -> None:
        if found := lacking(self.program):
            raise SandboxError("no jail can be made", found.why, found.hint)

    @contextlib.contextmanager
    def _or_nothing(self, policy: Policy, *, keeps_alive: bool = False):  # type: ignore[no-untyped-def]
        """Clear away what was begun where something raises; an error of the system becomes ours."""
        try:
            yield
        except BaseException as error:
            if not keeps_alive or self._site(policy).first_process() is None:
                with contextlib.suppress(KasmonError):
                    self.destroy(policy, None)
            if isinstance(error, OSError | ValueError):
                raise SandboxError("no jail was made", str(error)) from error
            raise

    def _scene(
        self, policy: Policy, workdir: str, variables: Mapping[str, str] | None = None, programs: Sequence[Path] = ()
    ) -> tuple[Scene, tuple[str, ...]]:
        """What the jail of *policy* looks like, and notices; its way out is open."""
        doors, known = dict(self.doors), dict(variables or {})
        if policy.hosts:
            self.ground.make(policy.session)
            doors[gate.MOUNTED] = str(self._site(policy).open_gate(policy))
            known = gate.finding(known)
        return scene(self.ground, policy, workdir, doors=doors, variables=known, programs=programs)

    def _writable(self, policy: Policy, workdir: str) -> list[str]:
        mounts = [mount.target or mount.source for mount in policy.mounts if mount.writable]
        return [workdir, *mounts, *([PROJECT] if policy.project_writable else [])]

    def _site(self, policy: Policy) -> Site:
        return Site(self.ground, policy.session)

    def _must_live(self, policy: Policy, runtime: Runtime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the jail of {policy.session!r} is gone", "its first process has ended")


def _relay(policy: Policy) -> list[str]:
    """What stands in front of a command inside that has a way out: it carries what programs send to their proxy."""
    return [PYTHON, "-I", "-S", f"{INSIDE}/forward.py", "--"] if policy.hosts else []
