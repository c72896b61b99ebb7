"""A host is small: dozens of them run at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from kasmon.model.events import SessionStarted
from tests.support.host.env import Env
from tests.support.wait import until

HEAVY = [
    "textual",
    "rich",
    "cyclopts",
    "psutil",
    "libtmux",
    "pyte",
    "watchfiles",
    "sqlite3",
    "multiprocessing",
    "tomlkit",
]


@pytest.mark.parametrize("module", ["kasmon.host.structured.host", "kasmon.host.rpc.connect"])
def test_neither_a_host_nor_its_client_loads_unused_modules(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)

    assert [] == [name for name in HEAVY if name in loaded.stdout.split()]


def test_a_host_loads_no_backend_but_its_own() -> None:
    program = (
        "import sys, kasmon.host.structured.host; from kasmon.backends import load; load('scripted'); "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    backends = {name for name in loaded.stdout.split() if name.startswith("kasmon.backends.")}

    assert {
        f"kasmon.backends.{name}" for name in ("base", "common", "common.environment", "scripted_backend")
    } == backends


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_host_with_its_agent_needs_little_memory(env: Env) -> None:
    """20 MB bare was measured; this is a net under an import that slips in, with room for other machines."""
    env.wants(prompt="say hello")
    env.environment = {**env.environment, "PYTHONNOUSERSITE": "1"}  # a fork would count what the fork server imported
    process = env.start()
    until(lambda: env.only(SessionStarted))
    status = Path(f"/proc/{process.pid}/status").read_text()
    (resident_kb,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]

    assert resident_kb < 45_000
