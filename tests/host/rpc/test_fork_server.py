"""The hosts of sessions start by fork from a server that nothing depends on. Real processes."""

import fcntl
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import pytest

from kasmon.host.rpc import fork_server, spawn
from kasmon.host.rpc.fork_server import ForkedHost
from kasmon.launch import RUN, SESSION
from kasmon.model.permission import SessionId
from kasmon.process_identity import is_running, started_at
from kasmon.system.linux import fields
from tests.support.host.env import Env
from tests.support.wait import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a fork without exec is unsafe elsewhere")

ONE, TWO = SessionId("aaaaaaaa"), SessionId("bbbbbbbb")


@pytest.fixture
def person(env: Env, monkeypatch: pytest.MonkeyPatch) -> Env:
    """A kasmon whose clients are started by a person."""
    monkeypatch.delenv(SESSION, raising=False)
    monkeypatch.delenv(RUN, raising=False)
    return env


def start(env: Env, session: SessionId) -> ForkedHost:
    """The host of *session*, which has its lock; it must be forked."""
    env.wants(session)
    host = spawn.spawn(env.paths, session)
    assert isinstance(host, ForkedHost)
    until(lambda: env.pid(session) == host.pid, what="the host's lock")
    return host


def parent(pid: int) -> int:
    found = fields(pid)
    assert found is not None
    return int(found[1])


def test_the_hosts_of_one_environment_have_one_server(person: Env) -> None:
    assert parent(start(person, ONE).pid) == parent(start(person, TWO).pid)


def test_a_host_is_a_process_like_one_that_was_not_forked(person: Env) -> None:
    pid = start(person, ONE).pid

    assert pid == os.getsid(pid) == os.getpgid(pid)
    assert Path("/") == Path(f"/proc/{pid}/cwd").readlink()
    assert "Umask:\t0077" in Path(f"/proc/{pid}/status").read_text()
    assert ["-m", "kasmon", "host", ONE] == Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")[2:]
    links = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 - some lead to no path
    assert {str(person.paths.host_log(ONE)), str(person.paths.host_lock(ONE)), "/dev/null"} <= links
    assert not [link for link in links if "memfd" in link or "pidfd" in link or "deleted" in link]


def test_a_host_lives_on_when_its_server_is_killed_and_the_next_host_gets_another_server(person: Env) -> None:
    one = start(person, ONE)
    server = parent(one.pid)
    born = started_at(server)
    os.kill(server, signal.SIGKILL)
    until(lambda: not is_running(server, born))

    two = start(person, TWO)

    assert one.poll() is None is two.poll()
    assert parent(two.pid) not in (server, parent(one.pid))


def test_a_host_in_another_environment_gets_another_server(person: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(person, ONE)
    monkeypatch.setenv("LC_TIME", "tlh_KX.UTF-8")
    two = start(person, TWO)

    assert parent(one.pid) != parent(two.pid)
    assert "tlh_KX" in Path(f"/proc/{two.pid}/environ").read_text()


@pytest.mark.parametrize("mark", [SESSION, RUN])
def test_a_host_that_an_agent_starts_is_not_forked(person: Env, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    """The server lives on, so it must not be a process of the agent."""
    monkeypatch.setenv(mark, "x")
    person.wants(ONE)

    host = spawn.spawn(person.paths, ONE)

    assert not isinstance(host, ForkedHost)
    until(lambda: person.pid(ONE) == host.pid)


def test_no_host_starts_from_files_that_have_changed(
    person: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "sitecustomize.py"
    module.touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = parent(start(person, ONE).pid)
    module.write_text("# a new release")

    assert server != parent(start(person, TWO).pid)


def test_a_server_ends_when_its_socket_is_removed_and_its_hosts_have_ended(person: Env) -> None:
    one = start(person, ONE)
    server = parent(one.pid)
    born = started_at(server)
    [socket] = person.paths.runtime.glob("*.fork")
    socket.unlink()
    assert is_running(server, born)

    os.kill(one.pid, signal.SIGKILL)

    until(lambda: not is_running(server, born))
    assert -signal.SIGKILL == one.wait(60)


def test_a_stopped_server_delays_a_host_and_does_not_prevent_it(person: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "REPLY_S", 0.2)
    monkeypatch.setattr(fork_server, "START_S", 20)
    server = parent(start(person, ONE).pid)
    os.kill(server, signal.SIGSTOP)
    try:
        two = start(person, TWO)
    finally:
        os.kill(server, signal.SIGCONT)

    assert server != parent(two.pid)


def test_the_environment_of_a_server_has_no_secret(person: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "canary-7261")
    one = start(person, ONE)

    assert "canary" not in Path(f"/proc/{parent(one.pid)}/environ").read_text()
    assert "canary" not in Path(f"/proc/{one.pid}/environ").read_text()


def test_a_host_is_waited_for_by_a_client_with_more_descriptors_than_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    client, server = socket.socketpair()
    try:
        with client, server:
            host = ForkedHost(socket.socket(fileno=fcntl.fcntl(client, fcntl.F_DUPFD_CLOEXEC, 1500)), os.getpid())
            server.send(b"3\n")
            assert 3 == host.wait(60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
