"""A sandbox that keeps its memory, with its facts in a file, as its hosts have it, each a process of its own.

Hosts, and what plays the sandbox, are killed before any step of its way to disk and back; `judged` says what must hold
then, whatever died, and whenever.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

import psutil
import pytest

from kasmon.errors import KasmonError
from kasmon.model.events import Event, NoticeRaised, SandboxPhaseChanged, decode, encode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sandbox.microvm.machine import MicroVm

Act = Literal["sleep", "wake"]
Step = tuple[str, Literal["call", "return"]]
OURS: Final = f"{os.sep}kasmon{os.sep}"
LIMIT_S: Final = 60.0
USES: Final = "x = 42; open('file', 'w').write('42')"
SHOWS: Final = "print(globals().get('x'), open('file').read())"


class LoggedFacts:
    """The facts of one session's sandbox, in a file."""

    def __init__(self, root: Path) -> None:
        self.log = root / "facts"
        self.log.touch()

    def facts(self) -> list[Event]:
        return [decode(line) for line in self.log.read_bytes().splitlines()]

    def sandbox_state(self) -> SandboxState | None:
        known: SandboxState | None = None
        for fact in self.facts():
            known = apply_sandbox_event(known, fact)
        return known

    def _write(self, event: Event) -> None:
        with self.log.open("ab") as file:
            file.write(encode(event) + b"\n")


class CrashSandbox(LoggedFacts):
    """One session's; `tier` is what a host that knows nothing yet has."""

    def __init__(self, tier: Callable[[], MicroVm], root: Path) -> None:
        super().__init__(root)
        self.new_tier, self.policy = tier, SandboxPolicy(session=SessionId("microvm-n"), tier="microvm")

    @property
    def tier(self) -> MicroVm:
        return self.new_tier()

    def host(self) -> ManagedSandbox:
        """A process that knows nothing but the facts."""
        journal = SandboxJournal(
            self.sandbox_state(), self._write, tier="microvm", keeps_memory=True, terms=LifetimeTerms()
        )
        return ManagedSandbox(self.tier, self.policy, journal, lambda runtime: GuestChannel(runtime.socket))

    def told(self) -> int:
        """How often people were told something."""
        facts = self.facts()
        return sum(
            isinstance(fact, NoticeRaised) or (isinstance(fact, SandboxPhaseChanged) and bool(fact.lost))
            for fact in facts
        )

    def player(self) -> int:
        """The process that plays it now; 0 where none does."""
        runtime = self.tier._vm_files(self.policy).runtime()
        return runtime.pid if runtime else 0

    def living(self) -> int:
        """How many play it, noted or not, reachable or not."""
        disk = os.fspath(self.tier._vm_files(self.policy).disk)
        return sum(disk in opened_by(process.pid) for process in psutil.process_iter() if is_qemu(process))

    def before(self, act: Act) -> int:
        """All is as it is before *act*, and nothing of what was; how often people were told something so far."""
        self.tier.forget(self.policy)
        self.log.write_bytes(b"")
        box = self.host()
        box.arrive()
        box.run("python", USES)
        if act == "wake":
            box.sleep(to_disk=True)
        left(box)
        return self.told()

    def forget(self) -> None:
        self.tier.forget(self.policy)


def left(box: ManagedSandbox) -> None:
    """Leave the sandbox to whoever comes next."""
    if box.guest is not None:
        box.guest.close()


def is_qemu(process: psutil.Process) -> bool:
    return "qemu-system" in (words_of(process.pid)[:1] or [""])[0]


def words_of(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def opened_by(pid: int) -> set[str]:
    """The files that process *pid* has open."""
    try:
        return {os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH115, PTH208
    except OSError:
        return set()


def killed(sandbox: CrashSandbox, act: Act, at: Step, victim: Callable[[], int] = os.getpid) -> bool:
    """Let a host of its own do *act*, in which *victim* is killed at the step *at*; whether it came to that step."""
    child = os.fork()
    if child == 0:
        status = 3

        def look(frame: FrameType, event: str, _: Any) -> None:
            nonlocal status
            if (frame.f_code.co_qualname, event) == at and OURS in frame.f_code.co_filename:
                sys.setprofile(None)
                status = 0
                if pid := victim():
                    os.kill(pid, signal.SIGKILL)

        try:
            box = sandbox.host()
            box.arrive()
            sys.setprofile(look)
            box.sleep(to_disk=True) if act == "sleep" else box.wake()
        except KasmonError:
            pass
        finally:
            sys.setprofile(None)
            os._exit(status)
    deadline = time.monotonic() + LIMIT_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"it hangs after the kill at {at}")
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1]) in (0, -signal.SIGKILL)


def judged(sandbox: CrashSandbox, told_before: int, *, may_be_lost: bool) -> None:
    """Whoever comes next has a sandbox with what it held, or says that this is lost; there is one, and then none."""
    heir = sandbox.host()
    assert sandbox.living() <= 1
    lost = heir.arrive()
    lost = heir.wake() or lost

    assert SandboxPhase.RUNNING is heir.phase
    assert 1 == sandbox.living()
    assert sandbox.tier.kept(sandbox.policy) is None, "what lives is not on disk as well"
    held, _, file = heir.run("python", SHOWS).stdout.strip().partition(" ")
    assert "42" == file
    assert "42" == held or (may_be_lost and sandbox.told() > told_before), (held, lost)
    heir.end("over")
    left(heir)
    assert 0 == sandbox.living()


def tried(
    sandbox: CrashSandbox, act: Act, steps: Sequence[Step], victim: Callable[[], int], lossy: Sequence[Step] | None
) -> None:
    """Kill *victim* at each of *steps*; what was held may be lost at those that are *lossy*; None: at all of them."""
    for step in steps:
        steps_before = sandbox.before(act)
        assert killed(sandbox, act, step, victim), f"{act} has no step {step}"
        judged(sandbox, steps_before, may_be_lost=lossy is None or step in lossy)
