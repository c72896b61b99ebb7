"""kasmon installed on another machine: its wheel by the real pip, the way there by a real sshd."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon import __version__, system
from kasmon.config import load
from kasmon.errors import NotInstalledError
from kasmon.model.fleet import Fleet
from kasmon.process_identity import find_processes_with
from kasmon.store.machines import machine_names
from kasmon.supervisor.machines.installation import NAME, build_wheel
from kasmon.tui.gateway.operations import Operations
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.host.sshd import Sshd
from tests.support.supervisor.env import end

pytestmark = pytest.mark.story

PYTHON = """#!/bin/sh
# As much of Python as an installation needs: `-c` for the version, `-m venv FOLDER`, and there `-m pip install WHEEL`.
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip")
        [ -e "$BROKEN" ] && { echo "ERROR: no matching distribution"; exit 1; }
        for wheel; do :; done
        [ "${wheel##*/}" = NAME ] && [ -s "$wheel" ] || exit 1
        printf '#!/bin/sh\\nexec REAL -P -m kasmon "$@"\\n' >"${0%/*}/kasmon" && chmod +x "${0%/*}/kasmon" ;;
esac
"""
OTHER_PROTOCOL = """
import sys
from kasmon.bus.base import BusWelcome
from kasmon.bus.stream import _encode
from kasmon.sandbox.guest.mux import MESSAGE, pack_record
welcome = _encode(BusWelcome(kasmon="9.0", protocol=99, machine="box", abilities=()))
sys.stdout.buffer.write(b"kasmon bus\\n" + pack_record(MESSAGE, 0, welcome))
sys.stdout.flush()
sys.stdin.buffer.read()
"""


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A machine without kasmon, whose first `python3` is the one above."""
    root = Path(tempfile.mkdtemp(prefix="ki-", dir="/tmp"))
    (root / "bin").mkdir()
    python = root / "bin" / "python3"
    text = PYTHON.replace("NAME", NAME).replace("REAL", sys.executable).replace("$BROKEN", str(root / "broken"))
    python.write_text(text)
    python.chmod(0o700)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    yield from served(Sshd(root))


@pytest.fixture
def real_box(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A machine without kasmon, with a real Python and pip. What kasmon needs is there: pip downloads nothing."""
    root = Path(tempfile.mkdtemp(prefix="ki-", dir="/tmp"))
    (root / "bin").mkdir()
    (root / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    box = Sshd(root, {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"})
    packages = (
        box.home / f".local/share/kasmon/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    )
    packages.mkdir(parents=True)
    for path in Path(msgspec.__file__).parent.parent.iterdir():
        if "kasmon" not in path.name and not path.name.startswith(("pip", "setuptools", "__")):
            (packages / path.name).symlink_to(path)
    yield from served(box)


def served(box: Sshd) -> Iterator[Sshd]:
    """*box*, of which nothing is left afterwards."""
    try:
        yield box
    finally:
        box.close()
        while left := [pid for pid, of in find_processes_with("HOME") if of == str(box.home)]:
            for pid in left:
                end(pid)
        record = box.home / ".local/state/kasmon/runtime"
        if record.exists():
            shutil.rmtree(record.read_text().strip(), ignore_errors=True)
        shutil.rmtree(box.root)


@pytest.fixture
def kasmon(fork_server: ForkServer, box: Sshd) -> Iterator[Cli]:
    yield from reaching(box, fork_server)


def reaching(box: Sshd, fork_server: ForkServer) -> Iterator[Cli]:
    """A kasmon whose config leads to *box*."""
    line = Cli(fork_server)
    line.paths.config.mkdir(parents=True)
    line.paths.config_file.write_text(box.config)
    yield line
    line("machines", "rm", "gpu-1")
    line.close()


def test_pip_installs_the_wheel(tmp_path: Path) -> None:
    wheel, folder = tmp_path / NAME, tmp_path / "there"
    wheel.write_bytes(build_wheel())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run(pip, check=True)

    shown = subprocess.run(
        [sys.executable, "-P", "-c", "import kasmon; print(kasmon.__file__, kasmon.__version__)"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert shown.stdout.split() == [str(folder / "kasmon/__init__.py"), __version__]
    assert (folder / "bin" / "kasmon").exists()
    assert (folder / "kasmon/cli/help.txt").exists()


def test_kasmon_is_installed_if_requested_and_not_registered_otherwise(kasmon: Cli, box: Sshd) -> None:
    refused = kasmon("machines", "add", "gpu-1", "--ssh", "box")
    (box.root / "broken").touch()
    failed = kasmon("machines", "add", "gpu-1", "--ssh", "box", "--install")
    before = machine_names(kasmon.paths)
    (box.root / "broken").unlink()
    added = kasmon("machines", "add", "gpu-1", "--ssh", "box", "--install")

    assert (refused.code, "--install" in refused.err) == (3, True)
    assert (failed.code, before) == (69, [])
    assert "pip could not install kasmon on 'box': ERROR: no matching distribution" in failed.err
    assert added.code == 0, added.err
    [machine] = kasmon.json("machines", "ls")["machines"]
    assert (machine["state"], machine["kasmon"]) == ("connected", __version__)
    assert machine["command"] == [str(box.home / ".local/share/kasmon/venv/bin/kasmon")]
    assert not (box.home / ".local/share/kasmon" / NAME).exists()


@pytest.mark.faults  # it takes long, not that it kills anything
@pytest.mark.timeout(240)
def test_a_real_pip_installs_it_into_a_virtual_environment_that_serves_sessions(
    fork_server: ForkServer, real_box: Sshd
) -> None:
    with contextlib.contextmanager(reaching)(real_box, fork_server) as kasmon:
        kasmon.limit_s = 180.0  # pip takes a while on a machine at work
        added = kasmon("machines", "add", "gpu-1", "--ssh", "box", "--install")
        assert added.code == 0, added.err

        made = kasmon("new", "shell", "--on", "gpu-1", "--", "sh", "-c", "exec cat")
        assert made.code == 0, made.err
        host = psutil.Process(next(pid for pid in system.HERE.list_pids() if is_host(pid, real_box)))

        assert str(real_box.home / ".local/share/kasmon/venv/bin/python") == host.cmdline()[0]
        assert kasmon("stop", made.out.strip()).code == 0


def is_host(pid: int, box: Sshd) -> bool:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return "host" in process.cmdline() and process.environ().get("HOME") == str(box.home)
    return False


def test_a_kasmon_of_another_protocol_is_refused_and_not_registered(kasmon: Cli, box: Sshd) -> None:
    (box.root / "other.py").write_text(OTHER_PROTOCOL)
    command = shlex.join([sys.executable, str(box.root / "other.py")])

    refused = kasmon("machines", "add", "gpu-1", "--ssh", "box", "--command", command)

    assert (refused.code, machine_names(kasmon.paths)) == (69, [])
    assert "kasmon 9.0 there speaks bus protocol 99, this one 1" in refused.err


def test_a_terminal_on_the_machine_is_attached_by_ssh(kasmon: Cli, box: Sshd) -> None:
    assert kasmon("machines", "add", "gpu-1", "--ssh", "box", "--install").code == 0
    made = kasmon("new", "shell", "--on", "gpu-1", "--", "sh", "-c", "echo on-the-box; exec cat")
    assert made.code == 0, made.err

    code, shown = kasmon.terminal("attach", made.out.strip(), typed=[("on-the-box", "\x1d")])

    assert (code, "on-the-box" in shown) == (0, True)
    assert kasmon("stop", made.out.strip()).code == 0


async def test_the_dashboard_installs_it_on_request(kasmon: Cli) -> None:
    config = await asyncio.to_thread(load, kasmon.paths)
    operations = Operations(kasmon.paths, lambda: config, Fleet)
    with pytest.raises(NotInstalledError, match="kasmon is not installed on 'box'"):
        await operations.add_machine("gpu-1", "box")
    before = await asyncio.to_thread(machine_names, kasmon.paths)

    said = await operations.add_machine("gpu-1", "box", install=True)

    assert ("gpu-1 is registered; its sessions appear in the list.", []) == (said, before)
    assert ["gpu-1"] == await asyncio.to_thread(machine_names, kasmon.paths)
