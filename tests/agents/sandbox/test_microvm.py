"""A real agent in a virtual machine, to which its program is brought: asleep on disk, woken, and rebuilt.

No processor of this machine may carry that one: emulated, codex takes a few seconds to begin, and claude half a minute.
So they are run by `make test-agents-in-machines` alone.
"""

from collections.abc import Iterator

import pytest

from kasmon.sandbox.microvm.machine import MicroVm
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.agents.paused_agents import begun, goes_on_from_disk, housed, is_rebuilt
from tests.support.sandbox.machine_image import CACHE, IMAGE, need_machine, warmed

pytestmark = [pytest.mark.emulated, pytest.mark.timeout(600)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
SLOW_S = 150.0
"""A net for an emulated processor, no expectation."""


@pytest.fixture
def lodged(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """The stack, with an agent whose profile wants a microVM, and hands it nothing: so its memory may go to disk."""
    need_machine()
    monkeypatch.setattr("tests.support.agents.full_stack.LIMIT_S", SLOW_S)
    monkeypatch.setattr("tests.support.agents.paused_agents.LIMIT_S", SLOW_S)
    for name in ("image", "machines"):
        (stack.paths.state / name).symlink_to(CACHE / name)
    warmed(MicroVm(image=IMAGE))
    yield from housed(stack, "microvm", 'size = "default"', "files = []")


@pytest.mark.parametrize("name", ["codex", "claude"])
def test_the_conversation_continues_after_its_memory_was_on_disk_and_after_a_rebuild(lodged: Stack) -> None:
    session = begun(lodged)
    goes_on_from_disk(lodged, session)
    is_rebuilt(lodged, session)
