"""The tier `gvisor`: only as root, and only our own code. Its memory is on disk once, whole, and gone on from once."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import NotFoundError, SandboxError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Credential, Interpreter, Policy, Runtime
from kasmon.paths import places
from kasmon.sandbox.base import Slept
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.gvisor import image, lacks, weight
from kasmon.sandbox.gvisor.failing import NeverRanError
from kasmon.sandbox.gvisor.image import IMAGE
from kasmon.sandbox.gvisor.runsc import Runsc
from kasmon.sandbox.gvisor.tier import Gvisor
from kasmon.sandbox.jail.bubblewrap import Jail
from kasmon.sandbox.jail.process import gone, started_at
from kasmon.sandbox.memory import Memories
from tests.sandbox import gvisors
from tests.sandbox.interpreter_contract import InterpreterContract
from tests.sandbox.nights import words_of
from tests.sandbox.of_tiers import OfGvisor
from tests.sandbox.required import need_gvisor, need_jail
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


class TestGvisor(OfGvisor, SandboxContract):
    pass


class TestInGvisor(OfGvisor, InterpreterContract):
    pass


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
    files = [kept.image().parent / part.name for part in snapshot.parts]
    assert snapshot.size_bytes == sum(path.stat().st_size for path in files) > 100_000
    assert {0o600} == {path.stat().st_mode & 0o777 for path in files}
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
    assert "on\n" == kept.run(f"while n <= {before}: time.sleep(.01)\nprint('on')")


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


def test_what_its_memory_may_take_is_no_less_than_what_it_takes(kept: Kept) -> None:
    kept.run("open('/tmp/file', 'wb').write(bytes(range(256)) * 200_000)")
    guessed = weight.at_most_bytes(kept.runtime.pid)

    kept.asleep()

    snapshot = kept.memories.current()
    assert snapshot is not None
    assert guessed >= snapshot.size_bytes > 0


def test_a_disk_that_fills_up_all_the_same_leaves_no_memory_that_counts_and_no_second_sandbox(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes is guessed before; where that was too little, it goes on, or is gone and said to be."""
    folder, state = kept.memories.folder, (kept.memories.folder / "state.json").read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        (folder / "state.json").write_bytes(state)
        with monkeypatch.context() as patch:
            patch.setattr(weight, "must_fit", lambda *_: None)
            with pytest.raises(SandboxError, match="runsc does not checkpoint it"):
                kept.asleep()

        assert [] == [path for path in folder.iterdir() if path.is_dir()]
        assert kept.tier.kept(kept.policy) is None
        again = kept.tier.adopt(kept.policy)
        assert again is None or "42\n" == kept.run("print(x)", again)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_what_could_not_be_loaded_never_ran_and_its_memory_is_gone_on_from_once_that_can_be(kept: Kept) -> None:
    """A file that it had open is away, and comes back."""
    kept.run("held = open('/workspace/held', 'w+'); held.write('there'); held.flush()")
    held, away = (Path(kept.tier.workspace(kept.policy)) / name for name in ("held", "away"))
    slept = kept.asleep()
    held.rename(away)

    with pytest.raises(NeverRanError, match="no such file"):
        kept.woken(slept)

    assert 0 == sandboxes(kept)
    assert kept.tier.kept(kept.policy) is not None
    away.rename(held)
    assert "42 5\n" == kept.run("print(x, held.tell())", kept.woken(slept))
    with pytest.raises(SnapshotRefusedError, match="used already"):
        kept.memories.fit(kept.tier._runsc.maker())


@pytest.mark.parametrize("verb", ["checkpoint", "restore"])
def test_a_runsc_that_is_killed_in_the_midst_leaves_one_sandbox_or_none_and_nothing_that_counts(
    kept: Kept, tmp_path: Path, verb: str
) -> None:
    program = kept.tier._runsc.program
    dying = tmp_path / "runsc"
    words = f'case " $* " in *" {verb} "*) exec timeout -s KILL 0.05 {program} "$@";; esac; exec {program} "$@"'
    dying.write_text(f"#!/bin/sh\n{words}\n")
    dying.chmod(0o755)
    slept = kept.asleep() if verb == "restore" else None
    kept.tier = Gvisor(program=str(dying))

    with pytest.raises(SandboxError, match=f"runsc does not {verb} it"):
        kept.woken(slept) if slept else kept.asleep()

    kept.tier = Gvisor(program=program)
    assert kept.tier.kept(kept.policy) is None
    again = kept.tier.adopt(kept.policy)
    assert (again is not None) <= (sandboxes(kept) == 1)
    kept.tier.destroy(kept.policy, again)
    assert 0 == sandboxes(kept)


def sandboxes(kept: Kept) -> int:
    """How many are played, noted or not."""
    playing = [pid for pid, _ in kept.tier._runsc._playing(kept.tier._bundle(kept.policy))]
    return sum(words_of(pid)[:1] == ["runsc-sandbox"] for pid in playing)


def test_a_memory_of_another_boot_is_gone_on_from_and_no_process_of_this_one_is_taken_for_its_sandbox(
    kept: Kept,
) -> None:
    """As far as that can be said without a start of this machine: what was noted is of another boot then."""
    slept = kept.asleep()
    snapshot = kept.memories.current()
    assert snapshot is not None
    told = msgspec.structs.replace(snapshot, boot="another")
    (kept.memories.folder / snapshot.id / "snapshot.json").write_bytes(msgspec.json.encode(told))
    record = kept.tier._record(kept.policy)
    assert record is not None
    mine = msgspec.structs.replace(record.runtime, pid=os.getpid(), started=started_at(os.getpid()), boot="another")
    kept.tier._path(kept.policy).write_bytes(msgspec.json.encode(msgspec.structs.replace(record, runtime=mine)))

    assert not kept.tier.find(kept.policy, mine)
    kept.woken(slept)

    assert "42\n" == kept.run("print(x)")


def test_a_process_that_has_the_id_which_runsc_noted_is_not_the_sandbox_and_is_left_alone(kept: Kept) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            [noted] = kept.tier._runsc.root.glob("*.state")
            noted.write_text(noted.read_text().replace(str(kept.runtime.pid), str(stranger.pid)))
            os.kill(kept.runtime.pid, signal.SIGKILL)
            assert gone(kept.runtime.pid, kept.runtime.started, 5)
            assert (stranger.pid, "running") == kept.tier._runsc.state(kept.runtime.remote)

            assert kept.tier.adopt(kept.policy) is None
            kept.tier.destroy(kept.policy, None)

            assert stranger.poll() is None
            assert [] == list(kept.tier._runsc.root.glob("*"))
        finally:
            stranger.kill()


def test_its_clock_is_this_machines_once_it_woke(kept: Kept) -> None:
    kept.woken(kept.asleep())

    assert abs(time.time() - float(kept.run("import time; print(time.time())"))) < 2


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


KILLED: str = """
import os, signal, sys, threading, time
from pathlib import Path
import msgspec
from kasmon.model.sandbox import Policy, Runtime
from kasmon.sandbox import memory
from kasmon.sandbox.gvisor.tier import Gvisor
policy = msgspec.json.decode(sys.argv[1], type=Policy)
runtime, when = msgspec.json.decode(sys.argv[2], type=Runtime), sys.argv[3]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if when == "before it counts":
    memory.Memories._write = die
if when == "once it is written":
    memory.Draft.confirm = die
tier = Gvisor()
folder = tier.ground.of(policy.session) / "memory"
def watch():
    while not list(folder.glob(".*/checkpoint.img")):
        time.sleep(0.001)
    die()
if when == "while it is written":
    threading.Thread(target=watch).start()
tier.pause(policy, runtime, to_disk=True, turn=7)
"""


@pytest.mark.parametrize("when", ["while it is written", "once it is written", "before it counts"])
def test_whoever_is_killed_while_its_memory_is_written_does_not_lose_it(kept: Kept, when: str) -> None:
    told = [msgspec.json.encode(each).decode() for each in (kept.policy, kept.runtime)]
    died = subprocess.run([sys.executable, "-P", "-c", KILLED, *told, when])
    assert -signal.SIGKILL == died.returncode

    heir = Gvisor()
    assert heir.adopt(kept.policy) is None
    snapshot = heir.kept(kept.policy)

    assert snapshot is not None
    assert 7 == snapshot.turn
    assert "42\n" == kept.run("print(x)", heir.resume(kept.policy, kept.runtime, Slept(held=False)))
    assert heir.kept(kept.policy) is None


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
    assert image.holds(kept.image().parent, CANARY.encode())

    monkeypatch.setenv("OUR_TOKEN", CANARY)
    credentials = (Credential(name="TOKEN", variable="OUR_TOKEN"),)
    kept.policy = msgspec.structs.replace(kept.policy, credentials=credentials)
    slept = kept.asleep()

    assert not image.holds(kept.image().parent, CANARY.encode())
    assert image.holds(kept.image().parent, b"TOKEN")
    kept.woken(slept)
    assert "42\n" == kept.run("print(x)")


def test_destroyed_it_leaves_no_memory(kept: Kept) -> None:
    kept.asleep()
    folder = kept.memories.folder

    kept.tier.destroy(kept.policy, kept.runtime)

    assert not folder.exists()


def test_the_one_of_debian_12_keeps_memory_too_and_says_what_it_lacks() -> None:
    """It writes its memory packed, and in it `ls` fails."""
    if (found := Runsc(Path(), "runsc").lacking()) or Runsc(Path(), "runsc").released() > lacks.OLD:
        pytest.skip(found.why if found else "the one on PATH is newer")
    old, policy = Gvisor(program="runsc"), Policy(session=ME, tier="gvisor")
    try:
        runtime = old.create(policy)
        assert any("`ls` and `stat` fail" in notice and "KASMON_RUNSC" in notice for notice in runtime.notices)
        with contextlib.closing(Channel(runtime.socket)) as inside:
            inside.run("bash", "x=42", timeout_s=20)
            assert inside.run("bash", "ls /", timeout_s=20).exit_code

        runtime = old.resume(policy, runtime, old.pause(policy, runtime, to_disk=True))

        with contextlib.closing(Channel(runtime.socket)) as inside:
            assert "42\n" == inside.run("bash", "echo $x", timeout_s=20).stdout
        slept = old.pause(policy, runtime, to_disk=True)
        with pytest.raises(SnapshotRefusedError, match="another program"):
            Gvisor(program=str(gvisors.PROGRAM)).resume(policy, runtime, slept)
    finally:
        old.forget(policy)


def test_in_a_newer_one_files_can_be_listed_and_shells_programs_and_node_go_on(kept: Kept) -> None:
    if kept.tier._runsc.released() <= lacks.OLD:
        pytest.skip("it is Debian 12's")
    with contextlib.closing(Channel(kept.runtime.socket)) as inside:
        inside.run("node", "var x = 43", timeout_s=20)
    kept.woken(kept.asleep())

    with contextlib.closing(Channel(kept.runtime.socket)) as inside:
        listed = inside.run("bash", "touch file; ls -l; stat -c %n file; ls /usr/bin/bash", timeout_s=20)
        assert "43\n" == inside.run("node", "console.log(x)", timeout_s=20).stdout
    assert (0, ["file", "/usr/bin/bash"]) == (listed.exit_code, listed.stdout.splitlines()[-2:])
    assert "" == listed.stderr


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
    with pytest.raises(NotFoundError):
        Gvisor().wrap(Policy(session=ME), ["no-such-agent"], "/tmp", {})


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
    assert tried.why.startswith(lacks.KNOWN)


def test_it_can_be_tried_beside_a_jail_of_the_same_kasmon() -> None:
    """As `kasmon doctor` does."""
    need_jail()
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(Gvisor().probe)
        while not trying.done():
            Jail().probe()

        assert trying.result().ok, trying.result()
