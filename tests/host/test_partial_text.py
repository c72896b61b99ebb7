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
from tests.host.house import ME, House
from tests.host.puppet import Puppet
from tests.waiting import auntil, until

WORDS = " ".join(f"word{number:04}" for number in range(4000))
SECRET = "correct-horse-battery-staple"


def parts(house: House, *, thinking: bool = False) -> list[str]:
    return [part.text for part in house.only(PartialTextWritten) if part.thinking is thinking]


@pytest.mark.parametrize("word", ["word", "واژه", "👩\u200d🔬"], ids=ascii)
async def test_a_text_is_logged_in_parts_of_bounded_size_before_it_is_a_message(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Whatever the time."""
    monkeypatch.setattr(live_text, "PART_S", 3600.0)
    words = WORDS.replace("word", word)
    size = len(words.encode())
    async with house.hosting(puppet):
        puppet.say(*(Chunk(text=f"{each} ") for each in words.split()))
        await auntil(lambda: len("".join(parts(house)).encode()) >= size - PART_BYTES)

        assert max(len(part.encode()) for part in parts(house)) <= PART_BYTES
        assert words.startswith("".join(parts(house)).strip()[:-20])
        assert len(parts(house)) <= 2 * size // PART_BYTES + 2


async def test_a_short_text_is_logged_in_time(house: House, puppet: Puppet) -> None:
    """Its end does not come, nor 4 KB."""
    async with house.hosting(puppet):
        puppet.say(Chunk(text="so far"), Chunk(text="hm", thinking=True))

        await auntil(lambda: ["so far"] == parts(house) and ["hm"] == parts(house, thinking=True))


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


async def test_a_text_that_is_whole_at_once_has_no_parts(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(Chunk(text="all"), MessageWritten(at=time.time(), text="all"), TurnEnded(at=time.time()))
        await auntil(lambda: house.only(TurnEnded))

        assert [] == parts(house)


async def test_what_was_written_before_an_interruption_is_logged(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(Chunk(text="so far"), TurnEnded(at=time.time(), reason="interrupted"))
        await auntil(lambda: house.only(TurnEnded))
        kinds = [type(event) for event in house.events()]

        assert ["so far"] == parts(house)
        assert kinds.index(PartialTextWritten) < kinds.index(TurnEnded)


async def test_a_secret_in_a_stream_is_in_no_part(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has four characters at most."""
    monkeypatch.setattr(live_text, "PART_BYTES", 4)
    async with house.hosting(puppet):
        puppet.say(SecretsLearned((SECRET,)), *(Chunk(text=letter) for letter in f"it is {SECRET}, so"))
        await auntil(lambda: "".join(parts(house)).endswith(", so"))
        content = house.places.log(ME).read_text()

    assert "it is ⟨hidden: 28 characters⟩, so" == "".join(parts(house))
    assert len(parts(house)) > 5
    assert [] == [at for at in range(len(SECRET) - 5) if SECRET[at : at + 6] in content]


async def test_what_a_host_killed_in_mid_stream_showed_is_not_lost(house: House) -> None:
    """Neither by a reader nor by the next host."""
    house.wants(prompt=f"say {WORDS}\nslow 60", speed=3.0)
    process = house.start()
    until(lambda: len("".join(parts(house))) > 2 * PART_BYTES // 8, 20, "a part")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    logged = "".join(parts(house))
    last = logged.split()[-2]

    assert [] == house.only(MessageWritten)
    assert 2 == " ".join(await read(house.places, await asyncio.to_thread(house.session))).count(
        last
    )  # once in its prompt
    assert 2 == (await asyncio.to_thread(lambda: as_markdown(house.places, house.session()))).count(last)
    assert [] != [
        each
        for each in (await asyncio.to_thread(lambda: as_objects(house.places, house.session())))["events"]
        if each["kind"] == "part.written"
    ]

    again = house.start()
    until(lambda: len(house.only(SessionStarted)) == 2)
    shown = " ".join(await read(house.places, await asyncio.to_thread(house.session)))
    assert 2 == shown.count(last)
    assert "truncated" in shown
    again.terminate()
    until(lambda: house.only(SessionEnded))


async def test_the_parts_of_the_next_text_begin_with_its_first_character(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(Chunk(text="the first one"))
        await auntil(lambda: ["the first one"] == parts(house))
        puppet.say(MessageWritten(at=time.time(), text="the first one"), Chunk(text="second"))

        await auntil(lambda: ["the first one", "second"] == parts(house))


async def test_a_whole_text_supersedes_its_parts(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(Chunk(text=f"{WORDS} and"))
        await auntil(lambda: parts(house))
        assert "word0001" in " ".join(await read(house.places, await asyncio.to_thread(house.session)))
        puppet.say(MessageWritten(at=time.time(), text=f"{WORDS} and more"), TurnEnded(at=time.time()))
        await auntil(lambda: house.only(TurnEnded))
        shown = " ".join(await read(house.places, await asyncio.to_thread(house.session)))

    assert 1 == shown.count("word0001")
    assert 1 == (await asyncio.to_thread(lambda: as_markdown(house.places, house.session()))).count("word0001")
    assert "truncated" not in shown
    assert parts(house)
