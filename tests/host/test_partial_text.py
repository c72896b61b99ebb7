"""Text that is being written is in the log in bounded steps, and survives a host that is killed in mid-stream."""

import asyncio
import os
import signal
import time
from typing import cast

import pytest

from kasmon.backends.base import Chunk, SecretsLearned
from kasmon.host.journal.redaction import Redactor
from kasmon.host.structured import live_text
from kasmon.host.structured.live_text import PART_BYTES, LiveText
from kasmon.model.events import Event, MessageWritten, PartialTextWritten, SessionEnded, SessionStarted, TurnEnded
from kasmon.supervisor.sessions.export import as_markdown, as_objects
from kasmon.supervisor.sessions.read import read
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env
from tests.support.wait import auntil, until

WORDS = " ".join(f"word{number:04}" for number in range(4000))
SECRET = "correct-horse-battery-staple"


def parts(env: Env, *, thinking: bool = False) -> list[str]:
    return [part.text for part in env.only(PartialTextWritten) if part.thinking is thinking]


@pytest.mark.parametrize("word", ["word", "واژه", "👩\u200d🔬"], ids=ascii)
async def test_a_text_is_logged_in_parts_of_bounded_size_before_it_is_a_message(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Whatever the time."""
    monkeypatch.setattr(live_text, "PART_S", 3600.0)
    words = WORDS.replace("word", word)
    size = len(words.encode())
    async with env.hosting(fake):
        fake.say(*(Chunk(text=f"{each} ") for each in words.split()))
        await auntil(lambda: len("".join(parts(env)).encode()) >= size - PART_BYTES)

        assert max(len(part.encode()) for part in parts(env)) <= PART_BYTES
        assert words.startswith("".join(parts(env)).strip()[:-20])
        assert len(parts(env)) <= 2 * size // PART_BYTES + 2


async def test_a_short_text_is_logged_in_time(env: Env, fake: FakeAgent) -> None:
    """Its end does not come, nor 4 KB."""
    async with env.hosting(fake):
        fake.say(Chunk(text="so far"), Chunk(text="hm", thinking=True))

        await auntil(lambda: ["so far"] == parts(env) and ["hm"] == parts(env, thinking=True))


class SetLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is set."""

    now = 0.0

    def time(self) -> float:
        return self.now


def test_text_that_comes_without_a_pause_is_logged_once_a_second() -> None:
    logged: list[tuple[float, str]] = []
    with asyncio.Runner(loop_factory=SetLoop) as runner:
        loop = cast(SetLoop, runner.get_loop())

        def log(event: Event) -> None:
            logged.append((loop.now, cast(PartialTextWritten, event).text))

        async def write() -> None:
            live = LiveText(ME, Redactor(), log)
            for tenth in range(1, 41):
                live.write(Chunk(text=f"{tenth} "))
                loop.now = tenth / 10
                for _ in range(3):
                    await asyncio.sleep(0)
            live.end("over")

        runner.run(write())

    assert [1.0, 2.0, 3.0, 4.0] == pytest.approx([at for at, _ in logged], abs=0.11)
    assert "".join(f"{tenth} " for tenth in range(1, 41)) == "".join(text for _, text in logged)


async def test_a_text_that_arrives_whole_has_no_parts(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(Chunk(text="all"), MessageWritten(at=time.time(), text="all"), TurnEnded(at=time.time()))
        await auntil(lambda: env.only(TurnEnded))

        assert [] == parts(env)


async def test_text_before_an_interrupt_is_logged(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(Chunk(text="so far"), TurnEnded(at=time.time(), reason="interrupted"))
        await auntil(lambda: env.only(TurnEnded))
        kinds = [type(event) for event in env.events()]

        assert ["so far"] == parts(env)
        assert kinds.index(PartialTextWritten) < kinds.index(TurnEnded)


async def test_a_secret_in_a_stream_is_in_no_part(env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has four characters at most."""
    monkeypatch.setattr(live_text, "PART_BYTES", 4)
    async with env.hosting(fake):
        fake.say(SecretsLearned((SECRET,)), *(Chunk(text=letter) for letter in f"it is {SECRET}, so"))
        await auntil(lambda: "".join(parts(env)).endswith(", so"))
        content = env.paths.log(ME).read_text()

    assert "it is ⟨hidden: 28 characters⟩, so" == "".join(parts(env))
    assert len(parts(env)) > 5
    assert [] == [at for at in range(len(SECRET) - 5) if SECRET[at : at + 6] in content]


async def test_text_shown_before_the_host_is_killed_in_a_stream_is_not_lost(env: Env) -> None:
    """Neither by a reader nor by the next host."""
    env.wants(prompt=f"say {WORDS}\nslow 60", speed=3.0)
    process = env.start()
    until(lambda: len("".join(parts(env))) > 2 * PART_BYTES // 8, what="a part")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    logged = "".join(parts(env))
    last = logged.split()[-2]

    assert [] == env.only(MessageWritten)
    assert 2 == " ".join(await read(env.paths, await asyncio.to_thread(env.session))).count(last)  # once in its prompt
    assert 2 == (await asyncio.to_thread(lambda: as_markdown(env.paths, env.session()))).count(last)
    assert [] != [
        each
        for each in (await asyncio.to_thread(lambda: as_objects(env.paths, env.session())))["events"]
        if each["kind"] == "part.written"
    ]

    again = env.start()
    until(lambda: len(env.only(SessionStarted)) == 2)
    shown = " ".join(await read(env.paths, await asyncio.to_thread(env.session)))
    assert 2 == shown.count(last)
    assert "truncated" in shown
    again.terminate()
    until(lambda: env.only(SessionEnded))


async def test_the_parts_of_the_next_text_begin_with_its_first_character(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(Chunk(text="the first one"))
        await auntil(lambda: ["the first one"] == parts(env))
        fake.say(MessageWritten(at=time.time(), text="the first one"), Chunk(text="second"))

        await auntil(lambda: ["the first one", "second"] == parts(env))


async def test_a_whole_text_supersedes_its_parts(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(Chunk(text=f"{WORDS} and"))
        await auntil(lambda: parts(env))
        assert "word0001" in " ".join(await read(env.paths, await asyncio.to_thread(env.session)))
        fake.say(MessageWritten(at=time.time(), text=f"{WORDS} and more"), TurnEnded(at=time.time()))
        await auntil(lambda: env.only(TurnEnded))
        shown = " ".join(await read(env.paths, await asyncio.to_thread(env.session)))

    assert 1 == shown.count("word0001")
    assert 1 == (await asyncio.to_thread(lambda: as_markdown(env.paths, env.session()))).count("word0001")
    assert "truncated" not in shown
    assert parts(env)
