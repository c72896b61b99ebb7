"""The units of systemd and launchd that keep a cluster up, or serve a machine to one."""

import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from kasmon.bus.nats.unit import remove_unit, render_unit, start_unit, supervisor_here, unit_file
from kasmon.errors import UnavailableError

ARGV = ["/opt/my python", "-m", "kasmon", 'a"b', "100%", "$HOME"]
VARIABLES = {"XDG_STATE_HOME": "/home/me/it's %h $x"}


def fake_systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str = "") -> Path:
    """A `systemctl` that writes its arguments to a file."""
    calls, program = folder / "calls", folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n{body}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return calls


def test_a_value_in_a_systemd_unit_is_only_a_value(tmp_path: Path) -> None:
    text = render_unit("systemd", "cluster-c1", ARGV, VARIABLES, tmp_path / "log 100%")

    assert 'ExecStart="/opt/my python" "-m" "kasmon" "a\\"b" "100%%" "$$HOME"\n' in text
    assert 'Environment="XDG_STATE_HOME=/home/me/it\'s %%h $x"\n' in text
    assert f"StandardError=append:{tmp_path}/log 100%%\n" in text
    assert "UMask=0077\nRestart=on-failure\nRestartSec=2\nRestartPreventExitStatus=4\n" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "kasmon-cluster-c1.service"
    unit.write_text(render_unit("systemd", "cluster-c1", ["/bin/true", "100%", "$x"], VARIABLES, tmp_path / "log"))

    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    assert unit.name not in done.stderr


KEYS = {
    "Label": str,
    "ProgramArguments": list,
    "EnvironmentVariables": dict,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "StandardErrorPath": str,
    "Umask": int,
}
"""The types that launchd.plist(5) gives these keys; launchd ignores a key that it does not know."""


@pytest.mark.parametrize("service", ["cluster-c1", "cluster-gpu-1", "bus-c1"])
def test_a_launchd_agent_is_a_well_formed_property_list_with_keys_that_launchd_knows(
    service: str, tmp_path: Path
) -> None:
    variables = {**VARIABLES, "XDG_CONFIG_HOME": '/Users/me/<a> & "b" é'}
    text = render_unit("launchd", service, ARGV, variables, tmp_path / "log & 100%")

    agent = plistlib.loads(text.encode(), fmt=plistlib.FMT_XML)

    assert text.startswith(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"'
    )
    assert KEYS == {key: type(value) for key, value in agent.items()}
    assert (ARGV, variables) == (agent["ProgramArguments"], agent["EnvironmentVariables"])
    assert f"{agent['Label']}.plist" == unit_file("launchd", service).name
    assert f"org.kasmon.{service.replace('-', '.', 1)}" == agent["Label"]
    assert ({"SuccessfulExit": False}, True, 0o077) == (agent["KeepAlive"], agent["RunAtLoad"], agent["Umask"])
    assert str(tmp_path / "log & 100%") == agent["StandardErrorPath"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="systemd is on Linux only")
def test_a_unit_is_written_started_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_systemctl(tmp_path, monkeypatch)

    assert "systemd" == supervisor_here()
    start_unit("systemd", "bus-c1", "[Unit]\n", "kasmon bus")
    assert "[Unit]\n" == unit_file("systemd", "bus-c1").read_text()
    assert remove_unit("bus-c1")

    assert not unit_file("systemd", "bus-c1").exists()
    assert not remove_unit("bus-c1")
    name = "kasmon-bus-c1.service"
    wanted = ["daemon-reload", f"enable {name}", f"restart {name}", f"disable --now {name}"]
    made = [line.removeprefix("--user ") for line in calls.read_text().splitlines()]
    assert wanted == [line for line in made if line != "show-environment"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="systemd is on Linux only")
def test_without_a_user_s_systemd_there_is_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_systemctl(tmp_path, monkeypatch, "echo 'Failed to connect to bus' >&2; exit 1")

    assert "" == supervisor_here()
    assert not remove_unit("bus-c1")
    with pytest.raises(
        UnavailableError, match=r"daemon-reload` failed: Failed to connect to bus.*`kasmon bus` runs it"
    ):
        start_unit("systemd", "bus-c1", "[Unit]\n", "kasmon bus")
