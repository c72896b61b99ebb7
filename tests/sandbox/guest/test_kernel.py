"""What not every kernel or limit allows works in each tier."""

from typing import Final

import pytest

from kasmon.model.sandbox.policy import Interpreter
from tests.support.sandbox.guest_agent import Agent

TRIALS: Final[dict[str, tuple[Interpreter, str]]] = {
    "statx": ("bash", "ls -l / >/dev/null && stat / >/dev/null"),
    "memory": (
        "python",
        "import resource\nbefore = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 28, before[1]))\n"
        "try:\n    x = bytearray(1 << 30); raise SystemExit(1)\n"
        "except MemoryError: pass\n"
        "finally: resource.setrlimit(resource.RLIMIT_DATA, before)",
    ),
}
"""Name of it -> code that fails where it does not work."""


@pytest.mark.core
@pytest.mark.parametrize("what", TRIALS)
def test_it_works_in_a_sandbox_of_each_tier(agent: Agent, what: str) -> None:
    channel = agent.channel()
    ran = channel.run(*TRIALS[what], timeout_s=20)
    channel.close()

    assert 0 == ran.exit_code, ran.stderr
