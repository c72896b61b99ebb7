"""What those inside may use, and what happens when they want more: they are refused, and everybody else goes on."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.model.sandbox.policy import MIB, SIZES, SandboxSize
from kasmon.sandbox.jail import cgroup, jail
from kasmon.sandbox.jail.bwrap_arguments import build_arguments
from kasmon.sandbox.jail.cgroup import Cgroup, CgroupLimits, build_limit_prefix, find_group
from kasmon.sandbox.jail.session_files import JailFiles
from kasmon.sandbox.shared.filesystem_view import FilesystemView
from kasmon.sandbox.shared.safe_tree import measure_tree
from kasmon.sandbox.shared.usage import measure_usage
from tests.sandbox.conftest import JailedAgent, cpu_s
from tests.support.wait import until

Make = Callable[..., JailedAgent]
SMALL = SandboxSize(time_s=30, cpus=1, memory_bytes=192 * MIB, disk_bytes=8 * MIB, processes=24)

BOMB = """
import os, time
born = 0
try:
    while born < 500:
        if os.fork() == 0:
            [os.close(each) for each in (0, 1, 2)]
            time.sleep(60)
        born += 1
except OSError as error:
    print(born, error.strerror)
"""
FILL = """
import os
def fill(path):
    written = 0
    try:
        with open(path, 'wb', buffering=0) as file:
            while written < 1 << 28:
                written += file.write(bytes(1 << 20))
    except OSError as error:
        print(path, written >> 20, error.strerror)
"""


@pytest.fixture
def small(jailed_agent: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes jails that may use little."""
    monkeypatch.setitem(SIZES, "default", SMALL)
    return jailed_agent


@pytest.mark.sandboxes
@pytest.mark.parametrize("guarded", [True, False])
def test_a_fork_bomb_ends_at_the_limit_and_another_jail_does_not_feel_it(
    small: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Both run as the same user: the limit is each one's own."""
    other = small("b")
    with monkeypatch.context() as patch:
        if not guarded:
            patch.setattr(jail, "build_limit_prefix", lambda *_, **__: [])
            patch.setattr(cgroup, "find_group", lambda *_: None)
        one = small("a")
    code = BOMB if guarded else BOMB.replace("500", "60")
    did = one.run(code)

    if guarded:
        born, why = did.out.split(" ", 1)
        assert 0 < int(born) <= SMALL.processes
        assert "temporarily unavailable" in why
    else:
        assert "" == did.out
        assert one.jail.usage(one.policy, one.runtime).processes > SMALL.processes
    assert "2" == other.run("print(1 + 1)").out.strip()
    one.jail.destroy(one.policy, one.runtime)
    assert not one.lives()


@pytest.mark.sandboxes
@pytest.mark.parametrize("guarded", [True, False])
def test_memory_ends_at_the_limit_and_the_agent_continues(
    small: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(jail, "build_limit_prefix", lambda *_, **__: [])
    one = small()
    did = one.run("try:\n    print(len(bytearray(1 << 29)) >> 20)\nexcept MemoryError:\n    print('MemoryError')")

    assert ("MemoryError" if guarded else "512") == did.out.strip()
    assert "2" == one.run("print(1 + 1)").out.strip()


@pytest.mark.sandboxes
def test_memory_behind_files_ends_at_the_limit(small: Make) -> None:
    """A file in /tmp is memory as well."""
    did = small().run(f"{FILL}\nfor path in ('/tmp/x', '/dev/shm/x', '/run/x'): fill(path)\nfill('/dev/x')")
    lines = [line.split(" ", 2) for line in did.out.splitlines()]

    assert ["/tmp/x", "/dev/shm/x", "/run/x", "/dev/x"] == [path for path, _, _ in lines], did.err
    assert all(int(written) <= 96 for _, written, _ in lines)
    assert "Read-only file system" == lines[3][2]


@pytest.mark.sandboxes
@pytest.mark.parametrize("guarded", [True, False])
def test_a_file_grows_up_to_the_limit(small: Make, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        monkeypatch.setattr(jail, "build_limit_prefix", lambda *_, **__: [])
    one = small()
    did = one.run(FILL.replace("1 << 28", "1 << 24") + "\nfill('/workspace/x')")

    assert ("/workspace/x 8 File too large" if guarded else "") == did.out.strip()
    used = one.jail.usage(one.policy, one.runtime)
    assert (8 if guarded else 16) * MIB <= used.disk_bytes < 17 * MIB


@pytest.mark.sandboxes
def test_limits_cannot_be_raised_in_the_guest(small: Make) -> None:
    did = small().run(
        "import resource as r\n"
        "for name in ('DATA', 'NPROC', 'FSIZE', 'NOFILE', 'CORE', 'MEMLOCK'):\n"
        "    which = getattr(r, 'RLIMIT_' + name)\n"
        "    soft, hard = r.getrlimit(which)\n"
        "    try:\n        r.setrlimit(which, (hard, hard + 1))\n"
        "    except (ValueError, OSError):\n        print(name, hard)"
    )

    assert {
        "DATA": SMALL.memory_bytes,
        "NPROC": SMALL.processes,
        "FSIZE": SMALL.disk_bytes,
        "NOFILE": 4096,
        "CORE": 0,
        "MEMLOCK": 65536,
    } == {name: int(value) for name, value in (line.split() for line in did.out.splitlines())}


@pytest.mark.sandboxes
def test_the_meters_show_usage_and_limit(jailed_agent: Make) -> None:
    one = jailed_agent()
    before, used_s = one.jail.usage(one.policy, one.runtime), cpu_s(one.runtime.pid)
    one.run(
        "import os, time\n"
        "open('/workspace/x', 'wb').write(os.urandom(3 << 20))\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); [os.close(each) for each in (0, 1, 2)]\n"
        "    keep = bytearray(os.urandom(1 << 20)) * 40; end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\n"
        "    time.sleep(60)"
    )

    until(lambda: cpu_s(one.runtime.pid) - used_s >= 0.2)
    now = one.jail.usage(one.policy, one.runtime)
    group = JailFiles(one.jail.host_folders, one.policy.session).group
    is_together = group is not None and group.number("memory.current") is not None

    assert SIZES["default"] == now.allowed
    assert 38 * MIB < now.memory_bytes - before.memory_bytes < 60 * MIB or is_together
    assert 3 * MIB <= now.disk_bytes - before.disk_bytes < 4 * MIB
    assert before.processes + 1 == now.processes


@pytest.mark.sandboxes
def test_the_group_of_a_jail_is_there_as_long_as_it(jailed_agent: Make) -> None:
    one = jailed_agent()
    if (of := JailFiles(one.jail.host_folders, one.policy.session).group) is None:
        pytest.skip("no control group can be made here")
    assert of.is_there
    assert str(one.runtime.pid) in (of.folder / "cgroup.procs").read_text().split()

    one.jail.destroy(one.policy, one.runtime)
    assert not of.folder.exists()


TOGETHER = """
import os, time
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        keep = bytearray(os.urandom(1 << 20)) * 80
        time.sleep(60)
    children.append(child)
ended = [os.waitstatus_to_exitcode(os.wait()[1])]
for child in children:
    try: os.kill(child, 9)
    except ProcessLookupError: pass
print(ended)
"""
BUSY = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        until = time.monotonic() + 3
        while time.monotonic() < until: pass
        os._exit(0)
for _ in range(4): os.wait()
print(sum(os.times()[2:4]))
"""


def need_limits() -> None:
    """Skip the test where no control group of ours holds memory and processor."""
    tried, held = find_group("tried"), CgroupLimits(memory=False, processes=False, cpus=False)
    if tried is not None:
        with contextlib.suppress(OSError):
            held = tried.make(SMALL)
        tried.remove()
    if not (held.memory and held.cpus and held.processes):
        missing = [name for name, has in held._asdict().items() if not has]
        pytest.skip(f"no control group of ours holds {', '.join(missing)} here: it takes delegated controllers")


@pytest.mark.sandboxes
def test_all_of_a_jail_together_has_the_memory_of_its_group_and_its_agent_continues(small: Make) -> None:
    """Each of its processes takes less than the limit, which is for all of them: the kernel ends one."""
    need_limits()
    one = small()
    of = JailFiles(one.jail.host_folders, one.policy.session).group
    assert of is not None
    assert SMALL.memory_bytes == of.number("memory.max")

    assert "[-9]" == one.run(TOGETHER, 60.0).out.strip()
    assert "2" == one.run("print(1 + 1)").out.strip()
    assert one.jail.usage(one.policy, one.runtime).memory_bytes <= SMALL.memory_bytes


@pytest.mark.sandboxes
def test_all_of_a_jail_together_has_the_processors_of_its_group(small: Make) -> None:
    """Four that are busy for three seconds get the time of the one processor that is allowed, and not of more."""
    need_limits()

    assert float(small().run(BUSY, 60.0).out) <= 3 * 1.3 * SMALL.cpus


def test_the_limits_are_a_prefix_of_a_command() -> None:
    size = SIZES["build"]

    assert "--data=7:7" in build_limit_prefix(size, data_bytes=7)
    assert not any(word.startswith("--data") for word in build_limit_prefix(size))
    assert "--nproc=512:512" in build_limit_prefix(size)
    assert "--" == build_limit_prefix(size)[-1]


def test_what_is_in_memory_counts_against_it() -> None:
    looks = FilesystemView(
        things="/t", home="/h", lock="/l", binds=(), workdir="/", variables={}, size=SMALL, seccomp="9"
    )
    words = build_arguments(looks)
    sizes = {words[at + 3]: int(words[at + 1]) for at, word in enumerate(words) if word == "--size"}

    assert {"/tmp", "/dev/shm", "/run"} == sizes.keys()
    assert sum(sizes.values()) <= SMALL.memory_bytes + 16 * MIB


def fake_groups(root: Path, *, delegated: str) -> Path:
    """A /proc/self whose process is in the group `user/app/here` of a tree at *root*."""
    for folder in (root, root / "user", root / "user" / "app", root / "user" / "app" / "here"):
        folder.mkdir(parents=True)
        for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.freeze"):
            (folder / name).write_text("")
    (root / "user" / "app" / "cgroup.subtree_control").write_text(delegated)
    proc = root / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("1:name=systemd:/x\n0::/user/app/here\n")
    (proc / "mountinfo").write_text(f"30 1 0:26 / {root} rw,relatime - cgroup2 cgroup2 rw\n")
    return proc


def test_the_group_is_made_where_its_limits_hold(tmp_path: Path) -> None:
    proc = fake_groups(tmp_path / "limits", delegated="cpu memory pids\n")
    found = find_group("abcdefgh", proc)
    assert found is not None
    assert tmp_path / "limits" / "user" / "app" / "kasmon-abcdefgh" == found.folder

    nothing = find_group("abcdefgh", fake_groups(tmp_path / "none", delegated=""))
    assert nothing is not None
    assert tmp_path / "none" / "user" / "app" / "here" / "kasmon-abcdefgh" == nothing.folder


def test_without_control_groups_there_is_no_group(tmp_path: Path) -> None:
    assert find_group("abcdefgh", tmp_path) is None


def test_a_group_limits_only_with_its_controllers(tmp_path: Path) -> None:
    made = Cgroup(tmp_path)
    for name in ("memory.max", "cpu.max"):
        (tmp_path / name).write_text("max")

    assert CgroupLimits(memory=True, processes=False, cpus=True) == made.make(SMALL)
    assert str(SMALL.memory_bytes) == (tmp_path / "memory.max").read_text()
    assert "100000 100000" == (tmp_path / "cpu.max").read_text()
    assert made.number("memory.max") == SMALL.memory_bytes
    assert made.number("none") is None


def test_the_meters_of_a_missing_process_are_at_nothing_and_our_own_are_about_right(tmp_path: Path) -> None:
    used = measure_usage(2**22 + 1, (tmp_path,), SMALL)
    assert (0, 0) == (used.memory_bytes, used.processes)

    used = measure_usage(os.getpid(), (tmp_path,), SMALL)
    assert 10 * MIB < used.memory_bytes < 2048 * MIB
    assert used.processes >= 1


def test_a_folder_with_too_much_content_is_measured_within_a_time_limit(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / str(number)).mkdir()

    assert measure_tree(tmp_path).whole
    assert not measure_tree(tmp_path, most_entries=20).whole
    assert 20 == measure_tree(tmp_path, most_entries=20).entries
