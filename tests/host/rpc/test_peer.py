"""Which processes belong to an agent: real ones, by their ancestors, sessions and groups, and what they carry."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from kasmon import system
from kasmon.host.rpc import peer
from kasmon.host.rpc.peer import evidence
from kasmon.launch import MACHINERY
from kasmon.system.macos import MacOS
from tests.support.host.sshd import Sshd
from tests.support.wait import until

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                         start_new_session=len(sys.argv) > 1, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""

BESIDE = """
import sys
from kasmon import system
from kasmon.host.rpc import peer as kin
from kasmon.system.macos import MacOS
if sys.argv[2] != "True":
    system.HERE = MacOS()
print(kin.evidence(int(sys.argv[1])))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(program: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=dict(os.environ) | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # one with a mark would tell on the tests, if their session has no leader
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def seen_by_another_host(pid: int, has_proc: bool = True) -> str:
    """What a process beside this one says of *pid*; empty where it is a person's."""
    command = [sys.executable, "-P", "-c", BESIDE, str(pid), str(has_proc)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def test_the_agent_process_belongs_to_the_agent(start: Start) -> None:
    agent = start(SLEEPER)
    assert "up" == said(agent)

    assert evidence(agent.pid, {agent.pid})


@pytest.mark.parametrize("detached", [[], ["detached"]], ids=["child", "in a session of its own"])
def test_a_child_of_the_agent_belongs_to_it(start: Start, detached: list[str]) -> None:
    agent = start(PARENT, *detached)

    assert evidence(int(said(agent)), {agent.pid})


def test_a_child_of_the_host_process_belongs_to_an_agent(start: Start) -> None:
    child = start(SLEEPER)
    assert "up" == said(child)

    assert evidence(child.pid)


def test_a_process_with_the_variable_belongs_to_an_agent_anywhere(start: Start) -> None:
    marked, plain = start(PARENT, KASMON_SESSION="abcdefgh"), start(PARENT)

    assert ["KASMON_SESSION", ""] == [
        seen_by_another_host(int(said(each))).rpartition(" ")[2] for each in (marked, plain)
    ]


def test_the_host_process_belongs_to_no_agent(start: Start) -> None:
    """A person's dashboard."""
    other = start(SLEEPER)
    assert "up" == said(other)

    assert not evidence(os.getpid(), {other.pid})


def test_an_exited_process_counts_as_an_agents(start: Start) -> None:
    process = start(SLEEPER)
    assert "up" == said(process)
    process.kill()
    process.wait(60)
    until(lambda: peer._read_process(process.pid) is None)

    assert evidence(process.pid)


# Double forks: the parent has ended, and the system's own first process is the next one.

DOUBLE = """
import os, sys
how, mark = sys.argv[1:3]
if how == "leaderless":  # the leader of the session ends; another process in it carries the mark
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"], {mark: "x"})
if os.fork() == 0:
    if how == "own group":
        os.setpgid(0, 0)
    if os.fork() == 0:
        os.write(1, f"{os.getpid()}\\n".encode())
        os.execve(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"], {})
    os._exit(0)
os.wait()
if how != "leaderless":
    sys.stdin.read()
"""
"""Prints the id of a process with an empty environment, whose parent has ended."""


def orphan(started: subprocess.Popen[str]) -> int:
    pid = int(said(started))
    until(
        lambda: (facts := peer._read_process(pid)) is not None and facts.parent not in _children_of(started.pid),
        what="orphan",
    )
    return pid


def _children_of(pid: int) -> set[int]:
    facts = ((each, peer._read_process(each)) for each in system.HERE.list_pids())
    return {each for each, fact in facts if fact is not None and fact.parent == pid} | {pid}


@pytest.mark.parametrize("mark", peer.MARKS)
@pytest.mark.parametrize("has_proc", [True, False], ids=["proc", "no proc"])
def test_a_double_fork_is_identified_by_the_leader_of_its_session(start: Start, mark: str, has_proc: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DOUBLE, "own group", mark],
        env={mark: "x"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as agent:
        pid = orphan(agent)

        assert f"process {agent.pid} carries {mark}" == seen_by_another_host(pid, has_proc)
        assert f"process {agent.pid} is an agent or its host" == evidence(pid, {agent.pid})


def test_a_double_fork_is_identified_by_the_leader_of_its_group() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DOUBLE, "", ""],
        env={"KASMON_SESSION": "x"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as agent:
        assert f"process {agent.pid} carries KASMON_SESSION" == seen_by_another_host(orphan(agent))


def test_without_a_leader_the_other_members_of_the_session_identify_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DOUBLE, "leaderless", "KASMON_RUN"],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        pid = int(said(agent))
        until(lambda: agent.poll() is not None)

        assert "of the same session, carries KASMON_RUN" in seen_by_another_host(pid)


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="no control group can be made")
def test_a_control_group_for_an_agent_identifies_it_and_a_users_does_not(start: Start) -> None:
    host = start(PARENT, **{MACHINERY: "host"})
    agent, person = int(said(host)), start(SLEEPER, "orphan")
    assert "up" == said(person)
    group = Path(tempfile.mkdtemp(prefix="kasmon-test-", dir="/sys/fs/cgroup/memory"))
    try:
        (group / "cgroup.procs").write_text(f"{person.pid}\n")
        assert "" == seen_by_another_host(person.pid)
        (group / "cgroup.procs").write_text(f"{agent}\n")
        assert "of the same control group, was started by kasmon" in seen_by_another_host(person.pid)
        (group / "cgroup.procs").write_text(f"{host.pid}\n")  # who starts kasmon in a terminal has the host in it
        assert "" == seen_by_another_host(person.pid)
    finally:
        for pid in (host.pid, agent, person.pid):  # the host first: else its agent tells against whoever runs beside us
            Path("/sys/fs/cgroup/memory/cgroup.procs").write_text(f"{pid}\n")
        group.rmdir()


def test_a_host_that_exits_during_the_check_incriminates_no_process(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux moves an exiting process to the root of its control groups while its child still names it as its parent."""
    host = start(PARENT, **{MACHINERY: "host"})
    agent, person = int(said(host)), start(SLEEPER, "orphan")
    assert "up" == said(person)
    read, seen = system.HERE.read_control_group, list[int]()

    def read_at_exit(pid: int) -> bytes:
        """The second time that the host's is read, it exits: the first time is for the host's own sake."""
        seen.append(pid)
        if pid != host.pid or seen.count(pid) == 1:
            return read(pid)
        os.kill(pid, 9)
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        return b"0::/"  # as in version 1 of control groups; in version 2 it stays

    monkeypatch.setattr(system.HERE, "read_control_group", read_at_exit)
    try:
        assert "" == peer._by_company(person.pid, ())
    finally:
        os.kill(agent, 9)


# People, in what is their own.


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kk-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def end(pid: int) -> None:
    for each in sorted(_family_of(pid), reverse=True):
        with suppress(ProcessLookupError):  # `script` ends with what it ran
            os.kill(each, 9)


AROUND = [
    pytest.param([], id="a plain shell"),
    pytest.param(["setsid", "--wait"], id="a session of its own"),
    pytest.param(["script", "-qec"], id="another terminal"),
    pytest.param(["unshare", "--user", "--map-root-user", "--pid", "--fork"], id="a container"),
]


@pytest.mark.parametrize("around", AROUND)
def test_an_agents_command_belongs_to_it_in_any_wrapper_and_without_its_environment(
    folder: Path, around: list[str]
) -> None:
    if around and shutil.which(around[0]) is None:
        pytest.skip(f"{around[0]} is missing")
    told = folder / "pid"
    script = f"sh -c 'cat /proc/self/stat > {told}.new; mv {told}.new {told}; exec sleep 60'"
    argv = [*around, script, "/dev/null"] if around[:1] == ["script"] else [*around, *shlex.split(script)]
    path = os.environ["PATH"]
    line = f"{shlex.join(['env', '-i', f'PATH={path}', *argv])}; true"
    variables = {"PATH": path, "KASMON_SESSION": "abcdefgh"}
    with subprocess.Popen(
        ["sh", "-c", line], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    ) as agent:
        try:
            until(told.exists, what="the caller")
            callers = sorted(_family_of(agent.pid) - {agent.pid})

            assert len(callers) > 0
            assert [] == [pid for pid in callers if "carries KASMON_SESSION" not in seen_by_another_host(pid)]
        finally:
            end(agent.pid)


@pytest.mark.parametrize("around", AROUND)
def test_a_users_process_is_not_taken_for_an_agents(folder: Path, around: list[str]) -> None:
    if around and shutil.which(around[0]) is None:
        pytest.skip(f"{around[0]} is missing")
    told = folder / "pid"
    script = f"sh -c 'cat /proc/self/stat > {told}.new; mv {told}.new {told}; exec sleep 60'"
    argv = [*around, script, "/dev/null"] if around[:1] == ["script"] else [*around, *shlex.split(script)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True) as shell:
        try:
            until(told.exists, what="the caller")
            callers = sorted(_children_of(shell.pid))

            assert [""] * len(callers) == [seen_by_another_host(pid) for pid in callers]
        finally:
            end(shell.pid)


def test_a_user_over_ssh_is_not_taken_for_an_agent(folder: Path) -> None:
    machine = Sshd(folder)
    try:
        command = [*machine.ssh, "box", "sh -c 'echo $$; cat; true'"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
            assert "" == seen_by_another_host(int(said(shell)))
            shell.communicate()
    finally:
        machine.close()


def _family_of(pid: int) -> set[int]:
    children = _children_of(pid) - {pid}
    return {pid}.union(*(_family_of(child) for child in children))


@pytest.mark.parametrize(("socket", "mark", "expected"), [("own", "", ""), ("t.sock", MACHINERY, MACHINERY)])
def test_a_user_in_their_own_tmux_is_no_agent_and_a_process_in_kasmons_is(
    folder: Path, socket: str, mark: str, expected: str
) -> None:
    program = os.environ.get("KASMON_TMUX", "tmux")
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **({mark: "tmux"} if mark else {})}
    tmux = [program, "-f", "/dev/null", "-S", str(folder / socket)]
    subprocess.run([*tmux, "new-session", "-d", "cat"], env=environment, check=True)
    server = int(subprocess.run([*tmux, "display", "-p", "#{pid}"], capture_output=True, check=True).stdout)
    told = folder / "pid"
    try:
        # A person's shell, and a process that left everything but the variable that tmux gives it.
        tells = f'{sys.executable} -c \'import os; print(os.getpid(), flush=True); os.execlp("sleep", "sleep", "60")\''
        jobs = [f"{tells} > {told}.1", f"env -u {MACHINERY} setsid -f {tells} > {told}.2"]
        for job in jobs:
            subprocess.run([*tmux, "run-shell", "-b", job], check=True)
        pids = [
            int(until(lambda place=place: place.exists() and place.read_text(), what="a job"))  # type: ignore[misc]
            for place in (folder / "pid.1", folder / "pid.2")
        ]

        assert [expected] * 2 == [seen_by_another_host(pid).rpartition(" ")[2] for pid in pids]
        assert not expected or seen_by_another_host(pids[1]).startswith(f"process {server} carries")
        for pid in pids:
            os.kill(pid, 9)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


@pytest.mark.parametrize("pid", [0, -1])
def test_a_process_that_the_system_hides_counts_as_an_agents(pid: int) -> None:
    assert evidence(pid)


def test_without_proc_the_owner_is_found_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "HERE", MacOS())
    agent = start(PARENT, KASMON_SESSION="abcdefgh")
    child = int(said(agent))

    assert evidence(child, {agent.pid})
    assert not evidence(os.getpid(), {agent.pid})
    assert seen_by_another_host(child, has_proc=False)
    assert "" == seen_by_another_host(os.getppid(), has_proc=False)
