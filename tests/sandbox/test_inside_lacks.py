"""What a tier cannot is what it says it cannot, and nothing else: where it says nothing, all of this works in it."""

from typing import Final

import pytest

from kasmon.model.sandbox import Interpreter
from tests.sandbox.agents import Agent

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
"""Name of what a tier may lack -> code that fails where it does."""


@pytest.mark.core
@pytest.mark.parametrize("what", TRIALS)
def test_what_works_in_a_sandbox_is_all_but_what_its_tier_says(agent: Agent, what: str) -> None:
    channel = agent.channel()
    ran = channel.run(*TRIALS[what], timeout_s=20)
    channel.close()

    assert (what in agent.lacks) is (ran.exit_code != 0), ran.stderr
    assert agent.lacks <= {*TRIALS}
