"""What a run prints on its way to a client: in parts while it goes on, and never more than a client can be behind."""

from collections.abc import Callable, Hashable

import pytest

from kasmon.host.rpc.frames import Frame, RunOutputChunk
from kasmon.host.structured import live_text as run
from kasmon.host.structured.live_text import BEHIND, RunStream, execute
from kasmon.model.commands import Resume, Run, SandboxCommand
from kasmon.model.sandbox.policy import RunResult
from tests.support.wait import auntil


class Client:
    """One who reads, or is behind: then only the newest of each key waits."""

    def __init__(self) -> None:
        self.is_behind = False
        self.got: list[RunOutputChunk] = []
        self._waiting: dict[Hashable, Callable[[], Frame | None]] = {}

    def push(self, frame: Callable[[], Frame | None], key: Hashable) -> None:
        self._waiting[key] = frame
        if not self.is_behind:
            self.read()

    def read(self) -> None:
        made = [frame() for frame in self._waiting.values()]
        self._waiting.clear()
        self.got += [frame for frame in made if isinstance(frame, RunOutputChunk)]


class Coder:
    """An agent whose runs print what the test says."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    async def run(self, wish: Run, printed: Callable[[str, str], None], /) -> RunResult:
        for text in self.texts:
            printed("stdout", text)
        return RunResult(stdout="".join(self.texts))

    async def change_sandbox(self, command: SandboxCommand, /) -> str:
        return "c1"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SOON_S", 0.001)


async def test_a_run_that_ends_at_once_is_reported_by_its_answer_alone() -> None:
    client = Client()

    done = await execute(Coder("all", " of it"), client, 7, Run(interpreter="bash", code="x", id="r1"))  # type: ignore[arg-type]

    assert (7, "all of it") == (done.n, done.ran.stdout if done.ran else "")
    assert [] == client.got


async def test_a_longer_run_is_shown_in_parts_each_once() -> None:
    client = Client()
    stream = RunStream(client, "r1")  # type: ignore[arg-type]
    stream.add("stdout", "one ")
    await auntil(lambda: client.got)
    stream.add("stdout", "two ")
    stream.add("stderr", "oh")
    stream.close()

    assert "one two " == "".join(frame.stdout for frame in client.got)
    assert "oh" == "".join(frame.stderr for frame in client.got)
    assert {"r1"} == {frame.run for frame in client.got}


async def test_a_slow_client_gets_the_newest_part_and_the_size_of_the_gap() -> None:
    client = Client()
    client.is_behind = True
    stream = RunStream(client, "r1")  # type: ignore[arg-type]
    stream.add("stdout", "a" * BEHIND)
    stream.add("stdout", "b" * 10)
    stream._push()
    stream.close()
    client.read()

    [frame] = client.got
    assert 10 == frame.skipped
    assert frame.stdout.endswith("a" * 5 + "b" * 10)
    assert BEHIND == len(frame.stdout)


async def test_every_other_command_is_answered_with_its_result() -> None:
    assert "c1" == (await execute(Coder(), Client(), 1, Resume())).outcome  # type: ignore[arg-type]
