"""What every act on a jail needs: the ground it stands on, its site, and what it is to look like."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Policy, Runtime
from kasmon.paths import Places, places
from kasmon.sandbox.base import Reason
from kasmon.sandbox.belongings import BIN, CONTEXT, Belongings, context_of
from kasmon.sandbox.clearing import or_nothing
from kasmon.sandbox.jail.arguments import PROJECT, Scene
from kasmon.sandbox.jail.ground import Ground
from kasmon.sandbox.jail.probing import lacking
from kasmon.sandbox.jail.process import lives
from kasmon.sandbox.jail.scenery import scene
from kasmon.sandbox.jail.site import Site
from kasmon.sandbox.network import gate


class Jails:
    """The jails of one kasmon. Making this touches nothing."""

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

    def find(self, policy: Policy, runtime: Runtime, /) -> bool:
        """Whether the jail of *runtime* is still that one and lives, asleep or not."""
        return lives(runtime.pid, runtime.started, runtime.boot)

    def destroy(self, policy: Policy, runtime: Runtime | None, /) -> None:
        """Leave no process, socket or mount of it."""
        raise NotImplementedError

    def missing(self) -> Reason | None:
        """Why none can be made here, as far as that is seen without trying; None where nothing speaks against it."""
        return lacking(self.program)

    def _can(self) -> None:
        if found := lacking(self.program):
            raise SandboxError("no jail can be made", found.why, found.hint)

    def _or_nothing(self, policy: Policy, *, keeps_alive: bool = False) -> AbstractContextManager[None]:
        """Clear away what was begun where something raises; an error of the system becomes ours.

        *keeps_alive*: a jail of it that lives is left as it is.
        """

        def clear() -> None:
            if not keeps_alive or self._site(policy).first_process() is None:
                self.destroy(policy, None)

        return or_nothing(clear, "no jail was made")

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

    def _with_place(self, looks: Scene, session: SessionId) -> Scene:
        """*looks* with what those inside may know of their session; `kasmon ctx` works there."""
        own = Belongings(self.ground.of(session))
        own.make(self.ground.owner, context_of(self.places, session))
        variables = {**looks.variables, "PATH": f"{BIN}:{looks.variables['PATH']}", "KASMON_CONTEXT": CONTEXT}
        return msgspec.structs.replace(looks, binds=[*looks.binds, *own.binds], variables=variables)

    def _writable(self, policy: Policy, workdir: str) -> list[str]:
        mounts = [mount.target or mount.source for mount in policy.mounts if mount.writable]
        return [workdir, *mounts, *([PROJECT] if policy.project_writable else [])]

    def _site(self, policy: Policy) -> Site:
        return Site(self.ground, policy.session)

    def _must_live(self, policy: Policy, runtime: Runtime) -> None:
        if not self.find(policy, runtime):
            raise SandboxError(f"the jail of {policy.session!r} is gone", "its first process has ended")
