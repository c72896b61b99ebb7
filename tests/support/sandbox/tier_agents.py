"""Where the tests of interpreters run: in an agent that nothing confines, and, unchanged, in a sandbox of each tier."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import Tier
from kasmon.paths import Paths
from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.shared.safe_tree import remove_tree
from kasmon.sandbox.tiers import TIERS
from tests.support.e2b.local_service import served
from tests.support.sandbox.guest_agent import Agent, TierAgent, running
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed
from tests.support.sandbox.requirements import need_jail

ALONE: Final = "alone"
KINDS: Final = (ALONE, *TIERS)


class TierAgents:
    """One kind of them. Sandboxes are made once for all tests: what one left in them is gone for the next module."""

    def __init__(self, tier: SandboxTier | None, ends: ExitStack) -> None:
        self.tier, self._ends = tier, ends
        self._made: dict[str, TierAgent] = {}

    @contextmanager
    def agent(self, name: str) -> Iterator[Agent]:
        """The agent called *name*, as if nobody had used it."""
        if self.tier is None:
            with running() as agent:
                yield agent
            return
        if name not in self._made:
            self._made[name] = TierAgent(self.tier, f"inside-{name}")
            self._ends.callback(self._made[name].end)
        else:
            self._made[name].begin_anew()
        yield self._made[name]

    @contextmanager
    def spare(self) -> Iterator[Agent]:
        """One of which nothing is left."""
        if self.tier is None:
            with running() as agent:
                yield agent
            return
        agent = TierAgent(self.tier, "inside-spare")
        try:
            yield agent
        finally:
            agent.end()


@contextmanager
def of_kind(kind: str) -> Iterator[TierAgents]:
    """Agents of *kind*, and of their sandboxes nothing after that; the test is skipped where none can be made here."""
    with ExitStack() as ends:
        if kind == ALONE:
            yield TierAgents(None, ends)
            return
        root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
        ends.callback(shutil.rmtree, root, ignore_errors=True)
        paths = Paths(state=root / "s", config=root / "c", given_runtime=root / "r")
        yield TierAgents(_tier(kind, paths, ends), ends)


def _tier(kind: str, paths: Paths, ends: ExitStack) -> SandboxTier:
    found: dict[str, Tier] = {str(tier): tier for tier in TIERS}
    if found[kind] == "jail":
        need_jail()
        jail = Jail(paths)
        ends.callback(remove_tree, jail.host_folders.base)
        return jail
    if found[kind] == "microvm":
        need_machine()
        machine = MicroVm(paths, image=IMAGE)
        warmed(machine)
        ends.callback(remove_tree, machine.host_folders.base)
        return machine
    need_jail()  # the service on loopback makes its sandboxes by the same program
    return E2b(paths, access=ends.enter_context(served()).access)
