"""The process that keeps a jail, or the jail itself, is killed in the midst of each transition, wherever that is.

Nothing hangs, nothing is made twice, nothing is said to be kept that is not, and its end leaves nothing.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from kasmon.errors import KasmonError
from kasmon.model.events import NoticeRaised, SandboxPhaseChanged
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.model.sandbox.state import SandboxState
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sandbox.shared.processes import holder
from tests.sandbox.conftest import policy
from tests.support.sandbox.crash_sandbox import LoggedFacts

pytestmark = pytest.mark.sandboxes
OURS: Final = f"{os.sep}kasmon{os.sep}sandbox{os.sep}"
LIMIT_S: Final = 100.0
PATHS: Final = (0.35, 0.6, 0.9)
"""How far a transition has come when the kill comes, as a share of all the calls that it makes."""


class Kept(LoggedFacts):
    """A jail with its facts in a file, as its hosts have it, each a process of its own."""

    def __init__(self, jail: Jail, policy: SandboxPolicy, root: Path) -> None:
        super().__init__(root)
        self.jail, self.policy, self.root = jail, policy, root

    def host(self) -> tuple[ManagedSandbox, SandboxCheckpoints]:
        journal = SandboxJournal(
            self.sandbox_state(), self._write, tier="jail", keeps_memory=False, terms=LifetimeTerms()
        )
        box = ManagedSandbox(self.jail, self.policy, journal, lambda runtime: GuestChannel(runtime.socket))
        return box, SandboxCheckpoints(box, CheckpointStore(self.root / "points"))

    def told(self) -> list[str]:
        """All that people were told."""
        notices = [fact.text for fact in self.facts() if isinstance(fact, NoticeRaised)]
        return [*notices, *(fact.lost for fact in self.facts() if isinstance(fact, SandboxPhaseChanged) and fact.lost)]


class Life:
    """One box, from the wishes of one process."""

    def __init__(self, kept: Kept) -> None:
        self.box, self.keeping = kept.host()

    def create(self) -> None:
        self.box.arrive()

    def sleep(self) -> None:
        self.box.arrive()
        self.box.sleep()

    def wake(self) -> None:
        self.box.arrive()
        self.box.wake()

    adopt = wake

    def checkpoint(self) -> None:
        self.box.arrive()
        self.keeping.create("asked")

    def restore(self) -> None:
        self.box.arrive()
        self.keeping.restore("c1")

    def end(self) -> None:
        self.box.arrive()
        self.box.end("over")

    def close(self) -> None:
        """Leave the jail to whoever comes next."""
        if self.box.guest is not None:
            self.box.guest.close()

    def use(self, value: int) -> None:
        """Leave *value* behind in an interpreter and in a file."""
        self.box.run("python", f"x = {value}; open('file', 'w').write('{value}')")


ACTS: Final = ("create", "adopt", "sleep", "wake", "checkpoint", "restore", "end")


@pytest.fixture
def kept(jail: Jail, shared: Path) -> Iterator[Kept]:
    real = Jail(jail.paths)
    made = Kept(real, policy("a"), shared)
    yield made
    real.forget(made.policy)


def before(kept: Kept, act: str) -> None:
    """What there is when *act* begins: a checkpoint with 1, and 2 in use; for waking it sleeps."""
    if act == "create":
        return
    life = Life(kept)
    life.create()
    life.use(1)
    life.keeping.create("asked")
    life.use(2)
    if act == "wake":
        life.box.sleep()
    life.close()


def in_a_process(kept: Kept, act: str, kill_at: int = 0, victim: Callable[[], int] = os.getpid) -> int:
    """Let a process of its own do *act*, in which *victim* is killed at the call *kill_at*; how many calls there were.

    0 where the process did not come to its end.
    """
    counted = kept.root / "calls"
    counted.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        calls = 0

        def count(frame: FrameType, event: str, _: Any) -> None:
            nonlocal calls
            if event == "call" and OURS in frame.f_code.co_filename:
                calls += 1
                if calls == kill_at:
                    sys.setprofile(None)
                    os.kill(victim(), signal.SIGKILL)

        try:
            life = Life(kept)
            sys.setprofile(count)
            getattr(life, act)()
        except KasmonError:
            pass
        finally:
            sys.setprofile(None)
            counted.write_text(str(calls))
            os._exit(0)
    deadline = time.monotonic() + LIMIT_S
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"{act} hangs")
        time.sleep(0.002)
    return int(counted.read_text()) if counted.exists() else 0


def judged(kept: Kept, act: str, told_before: int) -> None:
    """Whoever comes next has a sandbox that is as it was, or says what is lost; its end leaves nothing."""
    heir = Life(kept)
    lost = heir.box.arrive()
    lost = heir.box.wake() or lost
    said = len(kept.told()) > told_before or lost

    assert SandboxPhase.RUNNING is heir.box.phase
    found = heir.box.run(
        "python", "import os; print(globals().get('x'), os.path.exists('file') and open('file').read())"
    )
    held, _, file = found.stdout.strip().partition(" ")
    if act != "create":
        assert file in (("1", "2") if act == "restore" else ("2",)), found
        assert held in (file, "None") or said, (held, file)
        assert held != "None" or said or act == "end"
    heir.box.end("over")
    assert holder(kept.jail.host_folders.of(kept.policy.session) / "lock") is None
    assert not kept.jail.host_folders.socket(kept.policy.session).exists()


def anew(kept: Kept, act: str) -> int:
    """All is as it is before *act*, and nothing of what was; how much people were told so far."""
    kept.jail.forget(kept.policy)
    kept.log.write_bytes(b"")
    shutil.rmtree(kept.root / "points", ignore_errors=True)
    before(kept, act)
    return len(kept.told())


@pytest.mark.parametrize("act", ACTS)
def test_a_host_killed_at_any_point_leaves_a_state_that_the_next_one_continues(kept: Kept, act: str) -> None:
    anew(kept, act)
    calls = in_a_process(kept, act)
    assert calls > 20
    for place in PATHS:
        told = anew(kept, act)
        assert not in_a_process(kept, act, int(calls * place))
        judged(kept, act, told)


@pytest.mark.parametrize("act", ACTS[1:])
def test_a_jail_killed_at_any_point_is_replaced_and_that_is_reported(kept: Kept, act: str) -> None:
    anew(kept, act)
    calls = in_a_process(kept, act)
    for place in PATHS[1:2]:
        told = anew(kept, act)
        first = (kept.sandbox_state() or SandboxState()).runtime
        assert first is not None
        assert in_a_process(kept, act, int(calls * place), lambda pid=first.pid: pid)  # type: ignore[misc]
        assert not kept.jail.find(kept.policy, first)
        judged(kept, act, told)
