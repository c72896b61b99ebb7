"""A Mac's answers, in the formats of its programs and calls, and what kasmon reads in them. Not run on a Mac."""

import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import cast

import pytest

from kasmon import emit, system
from kasmon.backends.codex.program_path import find_program
from kasmon.backends.tmux.evidence.process_table import table
from kasmon.backends.tmux.input.command_completion import has_terminal
from kasmon.boot_id import boot
from kasmon.bus.nats import unit
from kasmon.cli.doctor.strays import strays
from kasmon.cli.doctor.system import limits
from kasmon.paths import user_paths
from kasmon.sandbox.jail.probe import lacking
from kasmon.system import macos
from kasmon.system.base import PeerProcess
from kasmon.system.linux import Linux
from kasmon.system.macos import MacOS
from kasmon.tmux.process_identity import ProcessIdentity, identify
from tests.support.system.macos import MacSelect, MacSocket, write_programs

STARTED = "Mon Nov 30 05:43:05 2026"
CHROME = "/Applications/Google Chrome.app/Contents/Frameworks/Google Chrome Framework.framework/Helpers/Google Chrome"
PROCESSES = (
    (1, 0, 1, 0, "Ss", "/sbin/launchd", "Sun Nov 29 08:00:00 2026"),
    (501, 1, 501, 503, "Ss", "-zsh", STARTED),
    (503, 501, 503, 503, "S+", "/opt/homebrew/bin/node", STARTED),
    (504, 503, 503, 503, "T+", "vim", STARTED),
    (505, 501, 505, 503, "Z", "(git)", STARTED),
    (506, 1, 506, 0, "S", CHROME, STARTED),
)
SETTINGS = {"kern.tty.ptmx_max": 511, "kern.maxprocperuid": 266}


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MacOS:
    """This system, as far as kasmon asks."""
    (tmp_path / "bin").mkdir()
    write_programs(tmp_path / "bin", PROCESSES, SETTINGS)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    here = MacOS()
    monkeypatch.setattr(system, "HERE", here)
    return here


@pytest.mark.usefixtures("mac")
def test_all_processes_are_listed_without_zombies_and_with_whole_names() -> None:
    found = table()

    assert [1, 501, 503, 504, 506] == sorted(found.entries)
    assert (1, 501, 503, "-zsh", False) == found.entries[501]
    assert [("node", False), ("vim", True), ("Google Chrome", False)] == [
        (found.entries[pid].name, found.entries[pid].is_stopped) for pid in (503, 504, 506)
    ]
    assert [503, 504] == found.below(501)
    assert found.is_back_at_shell(501) is False


@pytest.mark.usefixtures("mac")
def test_a_shell_has_its_terminal_if_its_group_is_in_the_foreground() -> None:
    assert [False, True, False, False] == [has_terminal(pid) for pid in (501, 503, 506, 999)]


@pytest.mark.usefixtures("mac")
def test_a_process_is_identified_by_its_start_in_one_form_for_all_locales() -> None:
    assert ProcessIdentity(503, f"{STARTED}@{system.HERE.read_boot_id()}") == identify(503)
    assert [None, None] == [identify(pid) for pid in (505, 999)]


@pytest.mark.skipif(sys.platform != "linux", reason="compares two systems")
def test_a_cached_value_of_one_system_is_not_used_for_another(mac: MacOS, monkeypatch: pytest.MonkeyPatch) -> None:
    first = boot()
    monkeypatch.setattr(system, "HERE", Linux())
    second = boot()
    monkeypatch.setattr(system, "HERE", mac)

    assert ["", Linux().read_boot_id(), ""] == [first, second, boot()]


@pytest.mark.parametrize("pid", [503, 0])
def test_the_peer_of_a_socket_is_identified_by_user_and_process(mac: MacOS, pid: int) -> None:
    assert PeerProcess(501, pid) == mac.identify_peer(cast("socket.socket", MacSocket(501, pid)))


def test_a_kernel_queue_reports_the_end_of_a_process(mac: MacOS, monkeypatch: pytest.MonkeyPatch) -> None:
    select = MacSelect([503])
    monkeypatch.setattr(macos, "select", select)

    assert 42 == mac.open_exit_handle(503).fileno()
    assert [(503, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)] == select.queues[0].watched
    with pytest.raises(ProcessLookupError):
        mac.open_exit_handle(999)
    assert [False, True] == [queue.is_closed for queue in select.queues]


def test_the_path_of_an_open_folder_is_the_kernels(mac: MacOS, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(handle: int, command: int, room: bytes) -> bytes:
        assert (7, 50, 1024) == (handle, command, len(room))  # F_GETPATH, MAXPATHLEN
        return b"/Users/me/a b".ljust(len(room), b"\0")

    monkeypatch.setattr(fcntl, "fcntl", answer)

    assert "/Users/me/a b" == mac.find_path(7)


def test_the_kernels_limits_are_those_of_a_mac(mac: MacOS) -> None:
    (check,) = limits(mac)

    assert "warn" == check.level
    assert "processes: 266 (50 agents need 512)" in check.text
    assert "terminals" not in check.text
    assert "kern.maxprocperuid" in check.fix


def test_features_missing_on_a_mac_are_reported_and_present_ones_used(mac: MacOS, tmp_path: Path) -> None:
    (tmp_path / "bin/launchctl").write_text("#!/bin/sh\n")
    (tmp_path / "bin/launchctl").chmod(0o755)

    assert "launchd" == unit.supervisor_here()
    assert ("open",) == mac.openers
    assert (reason := lacking("bwrap")) is not None
    assert "Linux" in reason.why
    assert [] == list(strays(user_paths({"HOME": str(tmp_path)})))


@pytest.mark.usefixtures("mac")
def test_a_hook_names_its_ancestors_as_ps_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "PROC", str(tmp_path / "no proc"))
    monkeypatch.setattr(os, "getppid", lambda: 504)

    assert [504, 503, 501, 1] == emit._ancestors()


@pytest.mark.usefixtures("mac")
def test_codex_is_found_in_its_package_for_macs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    package = tmp_path / "lib/node_modules/@openai/codex"
    for name in ("codex-darwin-arm64", "codex-darwin-x64", "codex-linux-arm64"):
        native = package / "node_modules/@openai" / name / "vendor/target/bin/codex"
        native.parent.mkdir(parents=True)
        native.touch(mode=0o755)
    (package / "bin").mkdir()
    (package / "bin/codex.js").touch(mode=0o755)
    (tmp_path / "bin/codex").symlink_to(package / "bin/codex.js")

    assert "codex-darwin-arm64" in find_program("codex", "codex", {"PATH": str(tmp_path / "bin")})
