"""A machine's life: copied from a warm one, put on disk with all it held, gone on from once; and what goes wrong."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import AgentLostError, RefusedError, SandboxError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SIZES, Credential, Mount, RunResult, SandboxPolicy, SandboxRuntime
from kasmon.paths import user_paths
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.microvm.boot import send_request, start_machine
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.microvm.qemu import QmpClient
from kasmon.sandbox.microvm.session_files import VmFiles
from kasmon.sandbox.microvm.warm_pool import WarmPool
from kasmon.sandbox.shared.processes import started_at
from tests.sandbox.conftest import open_to_others
from tests.support.sandbox.interpreter_contract import InterpreterContract
from tests.support.sandbox.machine_image import CACHE, IMAGE, machine
from tests.support.sandbox.sandbox_contract import SandboxContract
from tests.support.wait import until

pytestmark = [
    pytest.mark.sandboxes,
    pytest.mark.timeout(240),
]  # the first one starts the machine that all are copies of

Made = tuple[SandboxPolicy, SandboxRuntime]
Make = Callable[..., Made]


@pytest.fixture
def vm() -> Iterator[MicroVm]:
    with machine() as vm:
        yield vm


@pytest.fixture
def make(vm: MicroVm) -> Make:
    def make(name: str = "a", **more: object) -> Made:
        policy = SandboxPolicy(session=SessionId(name * 8), tier="microvm", **more)  # type: ignore[arg-type]
        return policy, vm.create(policy)

    return make


def ran(runtime: SandboxRuntime, interpreter: str, code: str) -> RunResult:
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        return inside.run(interpreter, code, timeout_s=60)  # type: ignore[arg-type]


def kept(vm: MicroVm, policy: SandboxPolicy, runtime: SandboxRuntime) -> PauseResult:
    return vm.pause(policy, runtime, to_disk=True)


def memory_of(vm: MicroVm, policy: SandboxPolicy) -> Path:
    snapshots = VmFiles(vm.host_folders, policy).snapshots
    snapshot = snapshots.current()
    assert snapshot is not None
    return snapshots.path(snapshot, "memory")


class TestMicroVm(SandboxContract):
    @pytest.fixture
    def tier(self, vm: MicroVm) -> MicroVm:
        user_paths().make()
        for name in ("image", "machines"):  # whatever stands in front of an agent knows no other image
            (user_paths().state / name).symlink_to(CACHE / name)
        return vm


class TestItsInterpreters(InterpreterContract):
    @pytest.fixture
    def tier(self, vm: MicroVm) -> MicroVm:
        return vm


# Memory on disk.


def test_a_machine_on_disk_has_no_process_and_resumes_with_memory_files_and_clock(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "python", "x = 41")
    ran(runtime, "bash", "y=5; cd /tmp; echo volatile > /run/seen; (while :; do date > /tmp/beat; sleep .1; done) & ")

    slept = kept(vm, policy, runtime)

    assert not slept.held
    assert not vm.find(policy, runtime)
    assert vm.adopt(policy) is None
    again = vm.resume(policy, runtime, slept)
    assert "42\n" == ran(again, "python", "print(x + 1)").stdout
    assert "5 /tmp volatile\n" == ran(again, "bash", "echo $y $PWD $(cat /run/seen)").stdout
    lag_s = time.time() - float(ran(again, "python", "import time; print(time.time())").stdout)
    assert abs(lag_s) < 2
    ran(again, "bash", "rm /tmp/beat")
    assert "there\n" == ran(again, "bash", "until [ -e /tmp/beat ]; do :; done; echo there").stdout


def test_a_clock_that_is_a_day_off_is_set_at_the_resume(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    send_request(VmFiles(vm.host_folders, policy).control, 20, "hello", now=time.time() - 86400, chance="00" * 64)
    assert time.time() - float(ran(runtime, "python", "import time; print(time.time())").stdout) > 86000

    again = vm.resume(policy, runtime, kept(vm, policy, runtime))

    assert abs(time.time() - float(ran(again, "python", "print(time.time())").stdout)) < 2


def test_a_memory_is_restored_once(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    slept = kept(vm, policy, runtime)
    again = vm.resume(policy, runtime, slept)
    with pytest.raises(SandboxError, match="it already has a running one"):
        vm.resume(policy, again, slept)
    os.kill(again.pid, signal.SIGKILL)
    until(lambda: not vm.find(policy, again) and vm.adopt(policy) is None)

    with pytest.raises(SnapshotRefusedError, match="it has already been used"):
        vm.resume(policy, again, slept)

    assert vm.kept(policy) is None


def test_a_session_never_has_two_machines(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()

    with pytest.raises(SandboxError, match="it already has a running one"):
        vm.create(policy)
    with pytest.raises(SandboxError, match="another machine of this session is running"):
        start_machine(VmFiles(vm.host_folders, policy), vm.provisioning.means, vm.provisioning._code())

    assert vm.find(policy, runtime)
    assert vm.adopt(policy) == runtime


def test_a_truncated_or_damaged_memory_is_refused_and_nothing_runs(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    slept = kept(vm, policy, runtime)
    path = memory_of(vm, policy)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"another")
    with pytest.raises(SnapshotRefusedError, match="damaged"):
        vm.resume(policy, runtime, slept)
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(SnapshotRefusedError, match="truncated"):
        vm.resume(policy, runtime, slept)

    assert vm.adopt(policy) is None


@pytest.mark.parametrize(("field", "value"), [("cpu", "Westmere"), ("program", "qemu 9"), ("image", "another")])
def test_a_memory_of_another_processor_qemu_or_image_is_refused(
    vm: MicroVm, make: Make, field: str, value: str
) -> None:
    """QEMU itself goes on from it, and says nothing."""
    policy, runtime = make()
    slept = kept(vm, policy, runtime)
    vm.provisioning.made_by = msgspec.structs.replace(vm.provisioning.made_by, **{field: value})

    with pytest.raises(SnapshotRefusedError, match=f"another {field}"):
        vm.resume(policy, runtime, slept)

    del vm.provisioning.made_by
    assert vm.find(policy, vm.resume(policy, runtime, slept))


def test_a_memory_with_a_changed_disk_or_of_another_session_is_refused_and_nothing_runs(
    vm: MicroVm, make: Make
) -> None:
    policy, runtime = make()
    slept = kept(vm, policy, runtime)
    lot = VmFiles(vm.host_folders, policy)
    snapshot = lot.snapshots.current()
    assert snapshot is not None
    record = lot.snapshots.path(snapshot, "snapshot.json")

    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(snapshot, session=SessionId("b" * 8))))
    with pytest.raises(SnapshotRefusedError, match="belongs to the session 'bbbbbbbb'"):
        vm.resume(policy, runtime, slept)
    record.write_bytes(msgspec.json.encode(snapshot))
    lot.snapshots.advance_generation()
    with pytest.raises(SnapshotRefusedError, match="stale: its disk was at 1, and is now at 2"):
        vm.resume(policy, runtime, slept)

    assert vm.adopt(policy) is None


def test_a_memory_of_another_boot_is_restored_and_no_current_process_is_taken_for_its_machine(
    vm: MicroVm, make: Make
) -> None:
    """As far as that can be said without a start of this machine: what was noted is of another boot then."""
    policy, runtime = make()
    ran(runtime, "python", "x = 42")
    slept = kept(vm, policy, runtime)
    snapshots = VmFiles(vm.host_folders, policy).snapshots
    snapshot = snapshots.current()
    assert snapshot is not None
    told = msgspec.structs.replace(snapshot, boot="another")
    snapshots.path(snapshot, "snapshot.json").write_bytes(msgspec.json.encode(told))
    mine = msgspec.structs.replace(runtime, pid=os.getpid(), started=started_at(os.getpid()), boot="another")

    assert not vm.find(policy, mine)
    assert "42\n" == ran(vm.resume(policy, mine, slept), "python", "print(x)").stdout


def test_a_qemu_that_does_not_start_or_dies_at_once_consumes_no_memory(vm: MicroVm, make: Make, tmp_path: Path) -> None:
    policy, runtime = make()
    ran(runtime, "python", "x = 42")
    slept = kept(vm, policy, runtime)
    broken = open_to_others(tmp_path) / "qemu"
    broken.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {vm.provisioning.program} --version\necho no memory >&2\nexit 1\n'
    )
    broken.chmod(0o755)

    with pytest.raises(SandboxError):
        MicroVm(vm.paths, image=vm.provisioning.image_folder, program=str(broken)).resume(policy, runtime, slept)

    assert vm.adopt(policy) is None
    snapshot = vm.kept(policy)
    assert snapshot is not None
    assert snapshot.id == slept.snapshot
    assert "42\n" == ran(vm.resume(policy, runtime, slept), "python", "print(x)").stdout


def test_a_disk_that_fills_up_meanwhile_keeps_the_machine_and_the_earlier_memory(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "python", "x = 42")
    folder = VmFiles(vm.host_folders, policy).snapshots.folder
    small = ["mount", "-t", "tmpfs", "-o", "size=40m,mode=0700", "tmpfs", str(folder)]
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() != 0 or subprocess.run(small, capture_output=True).returncode:
        pytest.skip("only root mounts a small disk")
    try:
        with pytest.raises(SandboxError, match="the disk is full"):
            kept(vm, policy, runtime)
        assert [] == [path for path in folder.iterdir() if path.is_dir()]
        again = vm.resume(policy, runtime, PauseResult(held=True))
        assert "42\n" == ran(again, "python", "print(x)").stdout
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    assert "42\n" == ran(vm.resume(policy, again, kept(vm, policy, again)), "python", "print(x)").stdout


def test_a_file_that_cannot_be_written_outside_prevents_the_pause_and_is_reported(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "bash", "mkdir taken")
    outside = Path(runtime.workspace) / "taken"
    owner = outside.stat().st_uid
    os.chown(outside, os.geteuid(), -1)
    outside.chmod(0o500)
    ran(runtime, "bash", "echo x > taken/f")
    with pytest.raises(SandboxError, match="not all of its files could be copied to this machine"):
        kept(vm, policy, runtime)

    assert "x\n" == ran(runtime, "bash", "cat taken/f").stdout
    outside.chmod(0o700)
    os.chown(outside, owner, -1)
    ran(runtime, "bash", "echo y > taken/f")
    kept(vm, policy, runtime)
    assert "y\n" == (outside / "f").read_text()


def test_qemu_killed_while_writing_its_memory_leaves_no_valid_memory(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    lot = VmFiles(vm.host_folders, policy)
    send_request(lot.control, 60, "freeze")
    with QmpClient(lot.qmp_socket) as orders:
        orders.do("stop")
        with lot.snapshots.draft() as draft:
            handle = os.open(draft / "memory", os.O_WRONLY | os.O_CREAT)
            orders.do("getfd", [handle], fdname="memory")
            os.close(handle)
            orders.do("migrate", uri="fd:memory")
            os.kill(runtime.pid, signal.SIGKILL)
            with pytest.raises(SandboxError):
                orders.wait_for_migration(20)

    until(lambda: vm.adopt(policy) is None)
    assert vm.kept(policy) is None
    assert not vm.find(policy, runtime)
    _, fresh = make()
    assert "1\n" == ran(fresh, "bash", "echo 1").stdout


def test_a_host_that_dies_between_any_two_steps_leaves_a_machine_for_the_next_one(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "python", "x = 42")
    lot = VmFiles(vm.host_folders, policy)
    send_request(lot.control, 60, "freeze")
    next_one = MicroVm(vm.paths, image=vm.provisioning.image_folder)
    found = next_one.adopt(policy)
    assert found == runtime
    assert "42\n" == ran(next_one.resume(policy, found, PauseResult(held=True)), "python", "print(x)").stdout

    send_request(lot.control, 60, "freeze")
    with QmpClient(lot.qmp_socket) as orders:
        orders.do("stop")

    assert "42\n" == ran(next_one.resume(policy, found, PauseResult(held=True)), "python", "print(x)").stdout
    assert next_one.kept(policy) is None


def test_a_warm_machine_of_another_version_is_not_copied(vm: MicroVm) -> None:
    stock, other = (
        vm.provisioning.warm_pool("default"),
        msgspec.structs.replace(vm.provisioning.made_by, image="another"),
    )

    assert stock.origin(vm.provisioning.made_by).memory is not None
    origin = stock.origin(other)

    assert (None, stock.plain) == (origin.memory, origin.base)
    assert "another image" in origin.why


def test_a_warm_machine_that_is_cut_is_not_copied(vm: MicroVm, tmp_path: Path) -> None:
    shutil.copytree(
        vm.provisioning.warm_pool("default").folder, tmp_path / vm.provisioning.warm_pool("default").folder.name
    )
    stock = WarmPool(tmp_path, SIZES["default"])
    memory = stock.origin(vm.provisioning.made_by).memory
    assert memory is not None
    os.truncate(memory, memory.stat().st_size - 1)

    origin = stock.origin(vm.provisioning.made_by)

    assert (None, stock.plain) == (origin.memory, origin.base)
    assert "truncated" in origin.why


def test_the_first_machine_of_a_size_is_stored_warm_and_continues_and_the_next_one_is_its_copy(
    vm: MicroVm, make: Make, shared: Path
) -> None:
    """Nothing of the first one's session is in it."""
    image = shared / "state" / "image"
    image.parent.mkdir()
    image.symlink_to(IMAGE)
    vm.provisioning.__dict__.pop("means", None)
    vm.provisioning.image_folder = image
    (shared / "seen").mkdir()
    _, first = make(
        "a", size="build", hosts=("example.org",), mounts=(Mount(source=str(shared / "seen"), target="/srv/seen"),)
    )
    assert any("was booted, not copied" in notice for notice in first.notices)
    assert not any("has to boot too" in notice for notice in first.notices)
    assert "/srv/seen\n" == ran(first, "bash", "cd /srv/seen && pwd").stdout

    _, next_one = make("b", size="build")

    assert () == next_one.notices
    assert identity(first) != identity(next_one)
    assert "1\n" == ran(next_one, "bash", "ls /srv; free -m | awk '/Mem/ {print ($2 > 1500)}'").stdout
    asked = """import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://example.org/", timeout=30)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())"""
    refused = ran(next_one, "python", asked).stdout
    assert refused.startswith("403 ")
    assert "is not on the list" in refused
    assert "http://127.0.0.1:3128\n" == ran(first, "bash", "echo $https_proxy").stdout


# Copies.


def test_a_fork_continues_with_its_own_memory_and_files(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "bash", "y=5; echo one > f")
    slept = kept(vm, policy, runtime)
    other = SandboxPolicy(session=SessionId("b" * 8), tier="microvm")

    copied = vm.fork(policy, slept, other)
    fork = vm.resume(other, SandboxRuntime(), copied)
    assert "5 one\n" == ran(fork, "bash", "echo $y $(cat f); echo two > f").stdout
    again = vm.resume(policy, runtime, slept)

    assert "5 one\n" == ran(again, "bash", "echo $y $(cat f)").stdout
    assert ("one\n", "two\n") == tuple((Path(each.workspace) / "f").read_text() for each in (again, fork))
    assert identity(again) != identity(fork)


def test_a_program_of_this_machine_is_readable_in_it_also_after_a_pause_and_in_a_fork(
    vm: MicroVm, shared: Path
) -> None:
    package = shared / "node_modules" / "greeter"
    package.mkdir(parents=True)
    program, word, told = (package / name for name in ("greet", "word", "package.json"))
    program.write_text('#!/bin/sh\nexec cat "${0%/*}/word"\n')
    word.write_text("hello")
    told.write_text("{}")
    program.chmod(0o700)
    policy, other = (SandboxPolicy(session=SessionId(name * 8), tier="microvm") for name in "ab")
    program_launch = vm.prepare_program(policy, (str(program),), str(shared), {})
    disk, greet = vm.provisioning.disks.prepare(program_launch.programs), program_launch.argv[0]
    try:
        runtime = vm.create_for_agent(policy, program_launch)
        said = ran(runtime, "bash", f"{greet}; echo x > {greet}")
        assert "hello" == said.stdout
        assert "Read-only file system" in said.stderr

        slept = kept(vm, policy, runtime)
        disk.unlink()  # it has a name of its own for it
        theirs = vm.fork(policy, slept, other)
        for each, sleeps in ((policy, slept), (other, theirs)):
            assert "hello" == ran(vm.resume(each, runtime, sleeps), "bash", greet).stdout
    finally:
        disk.unlink(missing_ok=True)


def test_five_copies_at_once_are_five_machines(vm: MicroVm) -> None:
    policies = [SandboxPolicy(session=SessionId(name * 8), tier="microvm") for name in "abcde"]

    with ThreadPoolExecutor(5) as pool:
        made = list(pool.map(vm.create, policies))

    assert 5 == len({identity(runtime) for runtime in made})
    assert 5 == len({ran(runtime, "bash", "head -c 8 /dev/urandom | od -An -tx1").stdout for runtime in made})
    assert not [notice for runtime in made for notice in runtime.notices]


def identity(runtime: SandboxRuntime) -> str:
    """Which agent answers: no code runs twice by going to another one."""
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        return inside.ping("nonce").instance


# Files.


def test_changes_in_its_workspace_are_outside_with_each_answer(vm: MicroVm, make: Make) -> None:
    _, runtime = make()
    folder = Path(runtime.workspace)
    ran(
        runtime, "bash", "mkdir -p a/b; echo 1 > a/b/c; ln -s /etc/passwd evil; printf x > $'\\xff\\n'; chmod 750 a/b/c"
    )
    assert "1\n" == (folder / "a/b/c").read_text()
    assert 0o750 == (folder / "a/b/c").stat().st_mode & 0o777
    assert "/etc/passwd" == os.readlink(folder / "evil")  # noqa: PTH115 - a link is not to be followed here
    assert b"x" == Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n")).read_bytes()

    ran(runtime, "bash", "mv a d; rm evil; mkdir evil; echo 2 >> d/b/c")

    assert ["d", "evil", "\udcff\n"] == sorted(os.listdir(folder))  # noqa: PTH208 - as the system has the names
    assert "1\n2\n" == (folder / "d/b/c").read_text()


def test_it_starts_with_the_files_of_its_workspace_and_the_next_machine_with_the_last_ones(
    vm: MicroVm, make: Make
) -> None:
    policy, runtime = make()
    ran(runtime, "bash", "mkdir sub; echo kept > sub/f; ln -s sub/f link; echo home > ~/.note")
    vm.destroy(policy, runtime)

    _, again = make()

    assert "kept kept home\n" == ran(again, "bash", "echo $(cat sub/f) $(cat link) $(cat ~/.note)").stdout


def test_an_outside_change_is_applied_and_a_change_on_both_sides_is_lost_on_neither(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    folder = Path(runtime.workspace)
    ran(runtime, "bash", "echo one > f; echo one > g; mkdir d")
    put(vm, folder / "f", "edited\n")
    put(vm, folder / "d" / "new", "new\n")

    assert () == vm.refresh(policy, runtime)
    assert "edited new\n" == ran(runtime, "bash", "echo $(cat f) $(cat d/new); echo more >> d/new").stdout
    assert "new\nmore\n" == (folder / "d" / "new").read_text()

    put(vm, folder / "g", "outside\n")
    ran(runtime, "bash", "echo inside > g")
    (told,) = vm.refresh(policy, runtime)
    assert "'g' was changed in the sandbox and on this machine" in told
    assert "outside inside\n" == ran(runtime, "bash", "echo $(cat g) $(cat g.inside)").stdout

    slept = kept(vm, policy, runtime)
    put(vm, folder / "f", "while it slept\n")
    (folder / "g").unlink()
    again = vm.resume(policy, runtime, slept)
    assert () == vm.refresh(policy, again)
    assert "while it slept no g\n" == ran(again, "bash", "echo $(cat f) $([ -e g ] || echo no g)").stdout


def put(vm: MicroVm, path: Path, text: str) -> None:
    """Write a file that the machine's user may read and write."""
    path.write_text(text)
    os.chown(path, *vm.host_folders.owner)


def test_its_disk_is_its_limit(make: Make) -> None:
    _, runtime = make()

    code = "import os; os.posix_fallocate(os.open('big', os.O_CREAT | os.O_WRONLY), 0, 2 << 30)"
    assert "No space left" in ran(runtime, "python", code).stderr


# Confinement.


def test_no_credential_of_node_is_in_the_memory_on_disk(
    vm: MicroVm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives nothing back clean: what is left is taken out of the image."""
    canary = f"canary-{secrets.token_hex(16)}"
    monkeypatch.setenv("CANARY", canary)
    policy, runtime = make(credentials=(Credential(name="TOKEN", variable="CANARY"),))
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        code = "let held = process.env.TOKEN + ''; let x = 41; held.length"
        inside.run("node", code, timeout_s=60, variables={"TOKEN": canary})
        inside.forget(["TOKEN"], [canary])

    slept = kept(vm, policy, runtime)

    assert canary.encode() not in memory_of(vm, policy).read_bytes()
    assert "42\n" == ran(vm.resume(policy, runtime, slept), "node", "x + 1").stdout


def test_no_form_of_a_credential_that_code_made_is_in_the_memory_on_disk(
    vm: MicroVm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hex, UTF-16 and reversed: code made them itself, so no interpreter can be told to forget them."""
    canary = f"canary-{secrets.token_hex(16)}"
    monkeypatch.setenv("CANARY", canary)
    policy, runtime = make(credentials=(Credential(name="TOKEN", variable="CANARY"),))
    code = (
        "import os; t = os.environ['TOKEN']; held = [t.encode().hex(), t.encode().hex().upper(),"
        " t.encode('utf-16-le'), t.encode('utf-16-be'), t[::-1]]; del t; x = 41"
    )
    made = [canary.encode().hex(), canary.encode().hex().upper(), canary[::-1]]
    wide = [canary.encode("utf-16-le"), canary.encode("utf-16-be")]
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        inside.run("python", code, timeout_s=60, variables={"TOKEN": canary})
        inside.forget(["TOKEN"], [canary])

    slept = kept(vm, policy, runtime)

    image = memory_of(vm, policy).read_bytes()
    assert [] == [form for form in (*(each.encode() for each in made), *wide) if form in image]
    assert "42\n" == ran(vm.resume(policy, runtime, slept), "python", "print(x + 1)").stdout


def test_neither_process_runs_as_root_and_both_end_together(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    for pid in (runtime.pid, runtime.front):
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert {str(vm.host_folders.owner[0])} == set(status["Uid"].split())
        assert "0" not in status["Uid"].split()
    assert "2" == status_of(runtime.pid)["Seccomp"].strip()

    os.kill(runtime.front, signal.SIGKILL)

    until(lambda: not vm.find(policy, runtime))
    with pytest.raises(AgentLostError):
        ran(runtime, "bash", "echo 1")


def status_of(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def test_killing_every_guest_process_ends_the_machine_and_no_other(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()

    with pytest.raises(AgentLostError):
        ran(runtime, "bash", "kill -9 -1")

    until(lambda: not vm.find(policy, runtime))


def test_a_removed_secret_is_not_in_the_memory_on_disk(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    canary = f"canary-{secrets.token_hex(16)}"
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        inside.write_volatile("/run/token", canary.encode(), 0o600)
        for interpreter, code in (
            ("bash", "echo ${#TOKEN}; held=$TOKEN"),
            ("python", "import os; held = os.environ['TOKEN']"),
        ):
            inside.run(interpreter, code, timeout_s=60, variables={"TOKEN": canary})  # type: ignore[arg-type]
        inside.write_volatile("/run/token", b"", 0o600)
        inside.forget(["TOKEN"], [canary])

    kept(vm, policy, runtime)

    assert canary.encode() not in memory_of(vm, policy).read_bytes()
    assert 0o600 == memory_of(vm, policy).stat().st_mode & 0o777
    path = memory_of(vm, policy)
    vm.destroy(policy, None)
    assert not path.exists()


def test_it_reports_its_usage(vm: MicroVm, make: Make) -> None:
    policy, runtime = make()
    ran(runtime, "bash", "echo 1 > f")

    used = vm.usage(policy, runtime)

    assert 0 < used.memory_bytes < used.allowed.memory_bytes
    assert 0 < used.disk_bytes


def test_a_folder_that_a_machine_cannot_see_is_refused_and_not_left_out(vm: MicroVm, shared: Path) -> None:
    (shared / "file").touch()
    for source, target, said in (
        (shared, "/etc/here", "its own system is there"),
        (shared / "file", "", "is a file"),
        (shared / "nothing", "", "does not exist"),
        (vm.paths.state, "/srv", "kasmon's own"),
    ):
        mount = Mount(source=str(source), target=target)
        with pytest.raises(RefusedError, match=said):
            vm.create(SandboxPolicy(session=SessionId("a" * 8), tier="microvm", mounts=(mount,)))
    assert vm.adopt(SandboxPolicy(session=SessionId("a" * 8))) is None


def test_a_probe_creates_one_machine_and_reports_the_time(vm: MicroVm) -> None:
    probe = vm.probe()

    assert probe.ok
    assert probe.measured_ms
    assert "copied from a warm one" in probe.why


def test_without_an_image_the_probe_shows_how_to_get_one(vm: MicroVm, tmp_path: Path) -> None:
    probe = MicroVm(vm.paths, image=tmp_path / "image").probe()

    assert (False, "there is no image") == (probe.ok, probe.why)
    assert "kasmon sandbox image build" in probe.hint
