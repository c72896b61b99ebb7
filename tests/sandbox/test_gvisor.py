"""The tier `gvisor`: only as root, and only our own code. Its memory is on disk once, whole, and gone on from once."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import RefusedError, SandboxError, SnapshotRefusedError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Credential, Interpreter, Policy, Runtime
from kasmon.paths import places
from kasmon.sandbox.base import Sandbox, Slept
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.credential import Looked
from kasmon.sandbox.gvisor import image
from kasmon.sandbox.gvisor import tier as module
from kasmon.sandbox.gvisor.runsc import Runsc
from kasmon.sandbox.gvisor.tier import IMAGE, Gvisor
from kasmon.sandbox.jail.process import gone
from kasmon.sandbox.memory import Memories
from tests.sandbox.interpreter_contract import InterpreterContract
from tests.sandbox.required import need_gvisor
from tests.sandbox.sandbox_contract import SandboxContract

pytestmark = pytest.mark.sandboxes
ME, OTHER = SessionId("abcdefgh"), SessionId("zyxwvuts")
HOLDS: dict[Interpreter, str] = {
    "python": "import os; held = os.environ['TOKEN'] * 2",
    "bash": 'held="$TOKEN$TOKEN"; echo $TOKEN >/dev/null',
    "node": "var held = process.env.TOKEN + process.env.TOKEN",
}
CANARY = "canary-8f2e61d07b"


@pytest.fixture(autouse=True)
def _can_gvisor() -> None:
    need_gvisor()


class TestGvisor(SandboxContract):
    @pytest.fixture
    def tier(self) -> Sandbox:
        return Gvisor()


class TestInGvisor(InterpreterContract):
    time_s = 1.0

    @pytest.fixture
    def tier(self) -> Sandbox:
        return Gvisor()


class Kept:
    """One sandbox, used a little."""

    def __init__(self, session: SessionId = ME) -> None:
        self.tier, self.policy = Gvisor(), Policy(session=session, tier="gvisor")
        self.runtime = self.tier.create(self.policy)
        self.run("x = 42")

    def run(self, code: str, runtime: Runtime | None = None) -> str:
        with contextlib.closing(Channel((runtime or self.runtime).socket)) as inside:
            return inside.run("python", code, timeout_s=20).stdout

    @property
    def memories(self) -> Memories:
        return Memories(self.tier.ground.of(self.policy.session) / "memory", self.policy.session, "gvisor")

    def asleep(self) -> Slept:
        return self.tier.pause(self.policy, self.runtime, to_disk=True, turn=3)

    def woken(self, slept: Slept) -> Runtime:
        self.runtime = self.tier.resume(self.policy, self.runtime, slept)
        return self.runtime

    def image(self) -> Path:
        snapshot = self.memories.current()
        assert snapshot is not None
        return self.memories.path(snapshot, IMAGE)

    def lives(self) -> bool:
        return self.tier.adopt(self.policy) is not None


@pytest.fixture
def kept() -> Iterator[Kept]:
    try:
        yield Kept()
    finally:
        for session in (ME, OTHER):
            Gvisor().forget(Policy(session=session, tier="gvisor"))


def test_on_disk_it_has_no_process_and_its_memory_says_what_it_is_of(kept: Kept) -> None:
    slept = kept.asleep()

    snapshot = kept.tier.kept(kept.policy)
    assert snapshot is not None
    assert (slept.snapshot, 3, "gvisor", "ptrace") == (
        snapshot.id, snapshot.turn, snapshot.tier, snapshot.made_by.machine,
    )  # fmt: skip
    assert snapshot.size_bytes == kept.image().stat().st_size > 100_000
    assert 0o600 == kept.image().stat().st_mode & 0o777
    assert gone(kept.runtime.pid, kept.runtime.started, 5)
    assert not kept.tier.find(kept.policy, kept.runtime)
    assert not kept.lives()


def test_what_ran_in_the_background_and_lay_in_memory_goes_on(kept: Kept) -> None:
    kept.run("import threading, time; n = 0; open('/run/kasmon/file', 'w').write('in memory')")
    kept.run("def count():\n    global n\n    while True:\n        n += 1; time.sleep(.01)")
    kept.run("threading.Thread(target=count, daemon=True).start()")

    kept.woken(kept.asleep())

    before = int(kept.run("print(n)"))
    assert "in memory\n" == kept.run("print(open('/run/kasmon/file').read())")
    assert "True\n" == kept.run(f"import time; time.sleep(.1); print(n > {before})")


def test_a_memory_is_gone_on_from_once_and_never_beside_one_that_lives(kept: Kept) -> None:
    slept = kept.asleep()
    kept.woken(slept)

    with pytest.raises(SandboxError, match="lives already"):
        kept.tier.resume(kept.policy, kept.runtime, slept)
    os.kill(kept.runtime.pid, signal.SIGKILL)
    gone(kept.runtime.pid, kept.runtime.started, 5)
    with pytest.raises(SnapshotRefusedError, match="used already"):
        kept.tier.resume(kept.policy, kept.runtime, slept)
    assert not kept.lives()


def test_what_is_not_what_was_kept_is_refused_and_nothing_runs(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = kept.asleep()
    whole, ours = kept.image().read_bytes(), kept.tier._runsc.maker()

    def refused(said: str) -> None:
        assert kept.tier.kept(kept.policy) is None
        with pytest.raises(SnapshotRefusedError, match=said):
            kept.woken(slept)
        assert not kept.lives()

    kept.image().write_bytes(whole[:-1])
    refused("truncated")
    kept.image().write_bytes(bytes(len(whole)))
    refused("damaged")
    kept.image().write_bytes(whole)
    for what in ("program", "cpu", "image"):
        with monkeypatch.context() as patch:
            other = msgspec.structs.replace(ours, **{what: "another one"})
            patch.setattr(Runsc, "maker", lambda _, other=other: other)
            refused(f"another {what}")
    kept.memories.moved_on()
    refused("stale")
    kept.memories.drop()
    refused("there is none")


def test_a_disk_that_could_not_hold_it_ends_nothing(kept: Kept) -> None:
    """This program ends what it cannot write whole: so it is not begun."""
    folder, state = kept.memories.folder, (kept.memories.folder / "state.json").read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        (folder / "state.json").write_bytes(state)
        with pytest.raises(SandboxError, match="the disk has 0 MiB left"):
            kept.asleep()

        assert "42\n" == kept.run("print(x)", kept.woken(Slept(held=True)))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_what_could_not_be_confirmed_goes_on_from_what_was_written(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Memories, "confirmed", _full)
        with pytest.raises(SandboxError, match="No space left"):
            kept.asleep()

    again = kept.tier.adopt(kept.policy)
    assert again is not None
    assert "42\n" == kept.run("print(x)", again)


def _full(*_: object) -> None:
    raise OSError(5, "No space left")


def test_one_whose_relay_died_is_found_by_its_tier_alone(kept: Kept) -> None:
    record = kept.tier._record(kept.policy)
    assert record is not None
    os.kill(record.relay.pid, signal.SIGKILL)
    assert gone(record.relay.pid, record.relay.started, 5)

    assert not kept.tier.find(kept.policy, kept.runtime)
    again = Gvisor().adopt(kept.policy)

    assert again is not None
    assert again.pid == kept.runtime.pid
    assert "42\n" == kept.run("print(x)", again)


def test_a_fork_has_the_memory_and_then_its_own(kept: Kept) -> None:
    other = Policy(session=OTHER, tier="gvisor")
    slept = kept.asleep()

    forked = kept.tier.resume(other, kept.runtime, kept.tier.fork(kept.policy, slept, other))
    kept.woken(slept)
    kept.run("x += 1; open('file', 'w').write('mine')")

    assert "43\n" == kept.run("print(x)")
    assert "42 False\n" == kept.run("import os; print(x, os.path.exists('file'))", forked)


def test_no_credential_is_in_an_image_also_not_in_memory_that_was_given_back(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is searched as it was before it was packed; that the value would be found is tried first."""
    with contextlib.closing(Channel(kept.runtime.socket)) as inside:
        for interpreter, code in HOLDS.items():
            inside.run(interpreter, code, timeout_s=20, variables={"TOKEN": CANARY})
        inside.forget(["TOKEN"], [CANARY])
    kept.woken(kept.asleep())
    assert CANARY.encode() in image.read(kept.image()).stream

    monkeypatch.setenv("OUR_TOKEN", CANARY)
    credentials = (Credential(name="TOKEN", variable="OUR_TOKEN"),)
    kept.policy = msgspec.structs.replace(kept.policy, credentials=credentials)
    slept = kept.asleep()

    assert CANARY.encode() not in image.read(kept.image()).stream
    assert b"TOKEN" in image.read(kept.image()).stream
    kept.woken(slept)
    assert "42\n" == kept.run("print(x)")


def test_an_image_that_cannot_be_searched_is_not_kept(tmp_path: Path) -> None:
    for content in (
        b"",
        b"gVisorSF",
        b"another one",
        b"gVisorSF" + bytes(44) + b"\x00\x10\x00\x00\x00\x00\x00\x04abcd",
    ):
        (tmp_path / "image").write_bytes(content)
        with pytest.raises(SandboxError, match="cannot be searched"):
            image.clean(tmp_path / "image", Looked({"TOKEN": CANARY}, ()))


def test_destroyed_it_leaves_no_memory(kept: Kept) -> None:
    kept.asleep()
    folder = kept.memories.folder

    kept.tier.destroy(kept.policy, kept.runtime)

    assert not folder.exists()


def test_one_that_a_host_makes_which_lets_nobody_read_its_files_runs_all_the_same() -> None:
    """Its places inside are made with the mask of whoever starts it."""
    before, policy = os.umask(0o077), Policy(session=ME, tier="gvisor")
    try:
        runtime = Gvisor().create(policy)
        with contextlib.closing(Channel(runtime.socket)) as inside:
            assert "ok\n" == inside.run("bash", "echo ok", timeout_s=20).stdout
    finally:
        os.umask(before)
        Gvisor().forget(policy)


def test_what_it_cannot_have_is_refused() -> None:
    with pytest.raises(RefusedError, match="network"):
        Gvisor().create(Policy(session=ME, hosts=("example.org",)))
    with pytest.raises(UnableError):
        Gvisor().wrap(Policy(session=ME), ["claude"], "/", {})


def test_where_kasmon_is_not_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        tried = Gvisor(places()).probe()

    assert not tried.ok
    assert "root" in tried.why


def test_trying_the_tier_writes_a_memory_and_goes_on_from_it_and_leaves_nothing() -> None:
    tried = Gvisor().probe()

    assert tried.ok, tried
    assert tried.measured_ms is not None
    assert not Gvisor().ground.base.exists()
    assert module.KNOWN == tried.why
