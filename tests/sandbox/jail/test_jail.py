"""A jail's life: made, found by whoever comes next, ended with nothing left; what it sees, what is proven of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import RefusedError, SandboxError, UnableError
from kasmon.model.sandbox.policy import Mount, SandboxRuntime
from kasmon.paths import Paths, user_paths
from kasmon.process_identity import started_at
from kasmon.sandbox.jail import cgroup, start
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared import host_folders, processes
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import holder
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.sandbox.conftest import TINY, JailedAgent, open_to_others, policy
from tests.sandbox.jail.test_attack import unguarded
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.short]

Make = Callable[..., JailedAgent]
IS_ROOT = os.geteuid() == 0
FALLS = "raise SystemExit(3)"

MAKES_ONE = """
import os, sys
from pathlib import Path
from kasmon.sandbox.jail.jail import Jail
from tests.sandbox.conftest import TINY, policy
runtime = Jail(inside=TINY).create(policy("a"))
print(runtime.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def left_of(jail: Jail) -> set[str]:
    """The names of what a jail has left outside, but for what is shared by all."""
    found = [*jail.paths.runtime.glob("*"), *jail.host_folders.of(policy("a").session).glob("*")]
    return {path.name for path in found}


def test_a_jail_answers_once_it_is_created_and_is_gone_completely_when_it_is_destroyed(jailed_agent: Make) -> None:
    one = jailed_agent()
    one.run("open('/workspace/file', 'w').write('kept'); open('/home/sandbox/.note', 'w')")
    assert one.lives()
    assert "2\n" == one.run("print(1 + 1)").out

    one.jail.destroy(one.policy, one.runtime)
    assert not one.lives()
    assert {"home", "workspace"} == left_of(one.jail)
    assert "kept" == (one.workspace / "file").read_text()
    one.jail.destroy(one.policy, one.runtime)
    one.jail.forget(one.policy)
    assert set() == left_of(one.jail)


def test_its_processes_are_an_ordinary_users_and_not_children_of_the_creator(jailed_agent: Make) -> None:
    one = jailed_agent()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{one.runtime.pid}/status").read_text().splitlines())

    assert {str(one.jail.host_folders.owner[0])} == set(status["Uid"].split())
    assert status["PPid"] != str(os.getpid())
    assert os.getsid(one.runtime.pid) not in (os.getsid(0), 0)


def test_a_jail_outlives_its_creator_and_is_adopted_by_the_next_one(jail: Jail) -> None:
    """Its maker is killed before it could tell anybody."""
    maker = subprocess.run(
        [sys.executable, "-P", "-c", MAKES_ONE],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    adopted = jail.adopt(policy("a"))

    assert -signal.SIGKILL == maker.returncode
    assert adopted is not None
    assert int(maker.stdout) == adopted.pid
    assert "7" == JailedAgent(jail, policy("a"), adopted).run("print(7)").out.strip()
    with pytest.raises(SandboxError, match="it already has a running one"):
        jail.create(policy("a"))
    jail.destroy(policy("a"), None)
    assert jail.adopt(policy("a")) is None
    assert set() == left_of(jail)


def test_a_creator_that_dies_halfway_leaves_parts_that_the_next_destroy_ends(jail: Jail) -> None:
    """At the worst moment: those inside run, and nobody has noted it."""
    dies = MAKES_ONE.replace(
        "runtime = ",
        "import kasmon.sandbox.jail.jail as b\nb.write_private = lambda *_: os.kill(os.getpid(), 9)\nruntime = ",
    )
    subprocess.run([sys.executable, "-P", "-c", dies], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    lock = jail.host_folders.of(policy("a").session) / "lock"
    init = until(lambda: holder(lock))
    assert jail.adopt(policy("a")) is None

    jail.destroy(policy("a"), None)

    assert started_at(init) is None
    assert set() == left_of(jail)


def test_another_process_of_the_same_number_is_not_the_jail(jailed_agent: Make) -> None:
    one = jailed_agent()

    for other in ({"started": one.runtime.started + 1}, {"boot": "another"}, {"pid": os.getpid()}, {"pid": 0}):
        assert not one.jail.find(one.policy, msgspec.structs.replace(one.runtime, **other))
    assert one.lives()


def test_destroying_by_an_old_note_kills_no_other_process(jailed_agent: Make) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        one = jailed_agent()
        stale = msgspec.structs.replace(one.runtime, pid=bystander.pid, started=1.0)
        one.jail.destroy(one.policy, stale)

        assert not one.lives()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    ("agent", "said"),
    [(FALLS, "it gives no reason"), ("import time; time.sleep(60)", "within 1 s"), (None, "main.py")],
    ids=["ends at once", "is never ready", "is not there"],
)
def test_a_jail_whose_agent_does_not_start_leaves_nothing(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent: str | None, said: str
) -> None:
    monkeypatch.setattr(start, "READY_S", 1.0)
    if agent is not None:
        (tmp_path / "main.py").write_text(agent)
    broken = Jail(inside=tmp_path)

    with pytest.raises(SandboxError, match=said):
        broken.create(policy())
    assert set() == left_of(jail)
    assert holder(jail.host_folders.of(policy().session) / "lock") is None


def test_an_error_of_bubblewrap_is_reported_unchanged(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "encode_arguments", lambda words: b"--no-such-option\0")

    with pytest.raises(SandboxError, match="no-such-option"):
        jail.create(policy())
    assert set() == left_of(jail)


def test_the_agents_own_output_is_kept_up_to_a_limit(jail: Jail, tmp_path: Path) -> None:
    talks = "import os\nfor _ in range(99):\n    try: os.write(2, bytes(4096))\n    except OSError: pass\n"
    (tmp_path / "main.py").write_text(talks + (TINY / "main.py").read_text())
    runtime = Jail(inside=tmp_path).create(policy())

    assert processes.LOG_BYTES == Path(f"/proc/{runtime.pid}/fd/2").stat().st_size
    assert jail.find(policy(), runtime)


def test_no_content_of_it_is_on_a_command_line(jailed_agent: Make, shared: Path) -> None:
    project = open_to_others(shared / "secret-project")
    one = jailed_agent(project=str(project))

    assert b"secret-project" not in Path(f"/proc/{one.runtime.pid}/cmdline").read_bytes()
    assert b"" == Path(f"/proc/{one.runtime.pid}/environ").read_bytes()


def test_a_jail_sees_its_allowed_folders_and_writes_only_where_permitted(jailed_agent: Make, shared: Path) -> None:
    project, tools, notes = (open_to_others(shared / name) for name in ("project", "tools", "notes"))
    (project / "readme").write_text("here")
    one = jailed_agent(
        project=str(project),
        mounts=(Mount(source=str(tools)), Mount(source=str(notes), target="/notes", writable=True)),
    )
    did = one.run(
        "import os\n"
        f"for path in ('/workspace', '/project', {str(tools)!r}, '/notes', os.path.expanduser('~'),\n"
        "             '/tmp', '/run', '/dev/shm'):\n"
        "    print(path, os.access(path, os.W_OK))\n"
        "print(open('/project/readme').read(), os.getcwd(), os.path.expanduser('~'), os.getuid(), os.environ['USER'])"
    )

    writable = {line.split()[0] for line in did.out.splitlines() if line.endswith("True")}
    assert {"/workspace", "/notes", "/home/sandbox", "/tmp", "/run", "/dev/shm"} == writable, did.err
    assert "here /workspace /home/sandbox 1000 sandbox" == did.out.splitlines()[-1]


def test_the_project_is_writable_only_if_requested(jailed_agent: Make, shared: Path) -> None:
    project = open_to_others(shared / "project")
    code = "open('/project/file', 'w')"

    assert "Read-only" in jailed_agent("a", project=str(project)).run(code).err
    assert 0 == jailed_agent("b", project=str(project), project_writable=True).run(code).code


@pytest.mark.skipif(not IS_ROOT, reason="only root has folders that its jails may not use")
def test_a_folder_of_root_is_copied_and_that_is_reported(jailed_agent: Make, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    (work / "deep" / "file").write_text("of root")
    (work / "link").symlink_to("/etc/shadow")
    one = jailed_agent(workspace=str(work))
    did = one.run("print(open('deep/file').read()); open('deep/file', 'w').write('changed')")

    assert "of root" == did.out.strip()
    assert "changed" == (one.workspace / "deep" / "file").read_text()
    assert "of root" == (work / "deep" / "file").read_text()
    assert (one.workspace / "link").is_symlink()
    assert str(one.workspace) == one.runtime.workspace != str(work)
    assert [str(work) in notice and str(one.workspace) in notice for notice in one.runtime.notices] == [True]


@pytest.mark.skipif(not IS_ROOT, reason="only root has folders that its jails may not use")
def test_a_copy_is_removed_with_its_session_unless_it_has_changes(jailed_agent: Make, tmp_path: Path) -> None:
    """What differs is somebody's work, and nowhere else: it stays, and is named. All the rest of its ground goes."""
    (tmp_path / "work").mkdir(mode=0o700)
    (tmp_path / "work" / "file").write_text("of root")
    idle, busy = (jailed_agent(name, workspace=str(tmp_path / "work")) for name in "ab")
    busy.run("open('/workspace/made', 'w').write('of a jail')")
    copied = busy.workspace

    assert "" == idle.jail.forget(idle.policy)
    assert not idle.jail.host_folders.of(idle.policy.session).exists()
    assert str(copied) == busy.jail.forget(busy.policy)
    assert [copied] == list(busy.jail.host_folders.of(busy.policy.session).iterdir())
    assert "of a jail" == (copied / "made").read_text()
    remove_tree(copied)
    assert "" == busy.jail.forget(busy.policy)


@pytest.mark.skipif(not IS_ROOT, reason="only root has folders that its jails may not use")
def test_a_folder_of_roots_that_is_too_large_to_copy_is_refused(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_folders, "COPY_BYTES", 1000)
    (tmp_path / "big").write_bytes(bytes(1001))

    with pytest.raises(RefusedError, match="too large"):
        jail.create(policy(workspace=str(tmp_path)))
    assert set() == left_of(jail)


def test_forbidden_folders_are_refused(jail: Jail, tmp_path: Path, shared: Path) -> None:
    state = user_paths().state
    refused = ["/", "/etc", "/root", "/proc/1", "/no/such"]
    refused += map(str, (state, state.parent, state / "sessions" / "x"))
    (tmp_path / "link").symlink_to("/")

    for folder in [*refused, str(tmp_path / "link")]:
        with pytest.raises(RefusedError):
            jail.create(policy(project=folder))
    for target in ("/usr/lib", "/proc/x", "/opt/kasmon", "relative", "/a/../b", "/"):
        with pytest.raises(RefusedError):
            jail.create(policy(mounts=(Mount(source=str(open_to_others(shared / "x")), target=target),)))
    assert set() == left_of(jail)


def test_the_proof_uses_values_of_the_kernel_from_inside_and_outside(jailed_agent: Make) -> None:
    one = jailed_agent()

    assert (True, ()) == msgspec.structs.astuple(one.jail.prove(one.policy, one.runtime.pid))
    assert (True, ()) == msgspec.structs.astuple(one.jail.prove_inside(policy("b")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unshare-net"], "network"),
        (["--unshare-ipc"], "ipc namespace"),
        (["--seccomp", "*"], "seccomp"),
        (["--remount-ro", "/"], "write to /"),
        (["--ro-bind", "/proc/sys", "/proc/sys"], ""),
    ],
    ids=["net", "ipc", "seccomp", "root", "settings"],
)
def test_a_proof_reports_any_difference(
    jailed_agent: Make, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    with unguarded(monkeypatch, words):
        one = jailed_agent()
    shown = one.jail.prove(one.policy, one.runtime.pid)

    assert bool(said) is not shown.ok
    assert any(said in mismatch for mismatch in shown.mismatches) or not said, shown


def test_the_process_of_kasmon_proves_nothing(jail: Jail) -> None:
    shown = jail.prove(policy(), os.getpid())

    assert not shown.ok
    assert len(shown.mismatches) >= 9


def test_a_jail_stores_no_memory_on_disk(jailed_agent: Make) -> None:
    one = jailed_agent()

    with pytest.raises(UnableError):
        one.jail.pause(one.policy, one.runtime, to_disk=True)
    with pytest.raises(SandboxError, match=r"the jail of .* has ended: its first process has ended"):
        one.jail.pause(one.policy, SandboxRuntime(pid=one.runtime.pid, started=1.0))


def test_unavailable_limits_are_reported(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cgroup, "find_group", lambda *_: None)
        tried = jail.probe()

    assert tried.ok
    assert "no control group" in tried.why


def test_a_check_of_the_tier_creates_one_jail_and_leaves_nothing(jail: Jail) -> None:
    tried = Jail(inside=TINY).probe()

    assert tried.ok
    assert "kernel" in tried.why
    assert tried.measured_ms is not None
    assert not jail.host_folders.base.exists()


def test_a_host_folder_exists_once_the_state_folder_does(shared: Path) -> None:
    where = Paths(state=shared / "s", config=shared / "c", given_runtime=shared / "r")
    before = HostFolders(where).base

    where.make()

    assert before == HostFolders(where).base
