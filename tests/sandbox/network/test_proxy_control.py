"""A sandbox's way out as a process: in force before it is needed, found again, ended with its sandbox."""

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import SandboxError, UsageError
from kasmon.sandbox.network import proxy_control
from tests.support.sandbox.full_disk import full_disk
from tests.support.wait import LIMIT_S, until


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kg-", dir="/tmp") as name:
        yield Path(name, "gate")
        proxy_control.close_proxy(Path(name, "gate"))


def ask(folder: Path, host: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(LIMIT_S)
        link.connect(str(folder / "inside" / "proxy.sock"))
        link.sendall(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        return link.recv(65536)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_it_applies_at_once_and_logs_refused_hosts(folder: Path) -> None:
    proxy_control.open_proxy(folder, "build", ["example.org"])

    assert b"403 evil.example:443 is not on the list" in ask(folder, "evil.example")
    (denial,) = proxy_control.denials(folder)
    assert "evil.example" == denial.host
    assert denial.sentence == (
        "evil.example:443 is not on the list of this sandbox; allow it with `kasmon sandbox allow build evil.example`."
    )
    assert () == proxy_control.denials(folder, denial.at)


def test_a_later_caller_finds_the_same_one_with_its_own_list(folder: Path) -> None:
    first = proxy_control.open_proxy(folder, "build", ["example.org"])

    assert first == proxy_control.open_proxy(folder, "build", ["other.example"])
    assert ["other.example"] == proxy_control.send_command(folder, {"do": "state"})["hosts"]
    proxy_control.allow(folder, [])
    assert [] == proxy_control.send_command(folder, {"do": "state"})["hosts"]


def test_on_a_full_disk_a_running_one_is_found_and_no_other_is_opened(folder: Path) -> None:
    first = proxy_control.open_proxy(folder, "build", ["example.org"])
    with full_disk():
        assert first == proxy_control.open_proxy(folder, "build", ["other.example"])
        with pytest.raises(SandboxError, match="the egress proxy of 'build' could not be started"):
            proxy_control.open_proxy(folder.with_name("second"), "build", ["example.org"])

    assert ["other.example"] == proxy_control.send_command(folder, {"do": "state"})["hosts"]
    assert not folder.with_name("second").exists()


def test_a_found_one_that_cannot_be_logged_is_reported(folder: Path) -> None:
    proxy_control.open_proxy(folder, "build", [])
    (folder / "gate.json").unlink()
    with full_disk(), pytest.raises(SandboxError, match="the egress proxy of 'build' could not be recorded"):
        proxy_control.open_proxy(folder, "build", ["example.org"])

    assert ["example.org"] == proxy_control.send_command(folder, {"do": "state"})["hosts"]


def test_a_dead_one_is_opened_again_at_the_address_that_the_sandbox_uses(folder: Path) -> None:
    first = proxy_control.open_proxy(folder, "build", ["example.org"])
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: is_gone(first.pid))
    assert not proxy_control.is_running(folder)
    seen = (folder / "inside").stat().st_ino

    assert first.pid != proxy_control.open_proxy(folder, "build", ["example.org"]).pid
    assert b"403" in ask(folder, "evil.example")
    assert seen == (folder / "inside").stat().st_ino


def test_it_ends_with_the_sandbox_that_it_belongs_to(folder: Path) -> None:
    way = proxy_control.open_proxy(folder, "build", ["example.org"])
    with subprocess.Popen(["sleep", "60"]) as sandbox:
        proxy_control.bind_to_process(folder, sandbox.pid)
        assert proxy_control.is_running(folder)
        sandbox.kill()

    until(lambda: is_gone(way.pid))


def test_closing_it_leaves_no_process_and_no_socket(folder: Path) -> None:
    way = proxy_control.open_proxy(folder, "build", ["example.org"])
    proxy_control.close_proxy(folder)
    proxy_control.close_proxy(folder)

    assert is_gone(way.pid)
    assert not folder.exists()


def test_one_that_hangs_is_ended_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = proxy_control.open_proxy(folder, "build", ["example.org"])
    monkeypatch.setattr(proxy_control, "ANSWER_S", 0.1)
    monkeypatch.setattr(proxy_control, "END_S", 0.1)
    os.kill(way.pid, signal.SIGSTOP)
    proxy_control.close_proxy(folder)

    until(lambda: is_gone(way.pid))


def test_what_is_no_host_opens_nothing_and_a_folder_with_too_long_a_path_is_refused_as_it_was(folder: Path) -> None:
    with pytest.raises(UsageError):
        proxy_control.open_proxy(folder, "build", ["*"])
    assert not folder.exists()

    with pytest.raises(SandboxError, match="103 bytes"):
        proxy_control.open_proxy(folder / ("x" * 100), "build", ["example.org"])
    assert not (folder / ("x" * 100)).exists()


def test_its_process_inherits_only_what_it_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary-3128")
    way = proxy_control.open_proxy(folder, "build", ["example.org"])

    assert b"canary" not in Path(f"/proc/{way.pid}/environ").read_bytes()
    assert 0o700 == folder.stat().st_mode & 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_root_lets_it_run_as_the_user_of_the_sandbox(folder: Path) -> None:
    way = proxy_control.open_proxy(folder, "build", ["example.org"], owner=(65534, 65534))
    status = Path(f"/proc/{way.pid}/status").read_text()

    assert "Uid:\t65534\t65534\t65534\t65534" in status
    assert "CapEff:\t0000000000000000" in status
    assert 65534 == (folder / "inside" / "proxy.sock").stat().st_uid
    assert b"403" in ask(folder, "evil.example")
    assert proxy_control.denials(folder)
