"""`send_keys` and `tap_enter` at a program in a terminal that takes an Enter only at the right moment.

The program is the bench's (kasmon/bench/programs/promptbox.py); what it was given it writes to a file.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kasmon import ExecutionSession, LaunchSpec
from kasmon.bench.dashboard.prompt_delivery import command, install_rules
from kasmon.config import Config, parse
from kasmon.errors import TimedOutError
from kasmon.execution import terminal
from tests.support.execution.actor_session import eventually, shows
from tests.support.tui.dashboard import Home

pytestmark = pytest.mark.story


@pytest.fixture
def known(home: Home) -> Home:
    """A kasmon that knows where the program's box is."""
    install_rules(home.paths)
    return home


def prepared(home: Home, flags: Sequence[str]) -> tuple[str, ...]:
    """The program's command line; the file that it writes to is there."""
    (home.path / "record").touch(mode=0o600)
    return tuple(command(home.paths, home.path / "record", flags))


@asynccontextmanager
async def box(home: Home, *flags: str, agent: str = "") -> AsyncIterator[ExecutionSession]:
    """The program, started just now; its box stands there."""
    argv = await asyncio.to_thread(prepared, home, flags)
    config = parse(f'[agents.{agent}]\nprogram = "{argv[0]}"') if agent else Config()
    one = ExecutionSession(LaunchSpec(name="box", agent=agent, argv=argv), where=home.paths, config=config)
    await one.start(home.path)
    try:
        await shows(one, "? for shortcuts")
        yield one
    finally:
        await one.close()


async def given(home: Home, count: int) -> list[str]:
    """The first *count* prompts that it took."""

    async def submitted() -> list[str]:
        written = await asyncio.to_thread((home.path / "record").read_text)
        records = map(json.loads, written.splitlines())
        prompts = [record["submitted"] for record in records if "submitted" in record]
        return prompts if len(prompts) >= count else []

    return await eventually(submitted, f"{count} prompts")


async def test_enter_is_not_taken_for_the_end_of_a_paste_by_an_unknown_program(home: Home) -> None:
    async with box(home, "swallow=0.05") as one:
        for text in ("first", "second", "third"):  # the first takes longer: screen files are read then
            await one.send_keys(text)
            await one.tap_enter()

        assert ["first", "second", "third"] == await given(home, 3)


async def test_enter_waits_until_the_text_is_in_the_box(known: Home) -> None:
    """It is drawn later than Enter comes to a program whose box nobody knows."""
    async with box(known, "blind=1", "late=0.6") as one:
        await one.send_keys("say on")
        await one.tap_enter()

        assert ["say on"] == await given(known, 1)


@pytest.mark.parametrize("agent", ["", "mine"], ids=["program", "profile"])
async def test_text_typed_after_enter_is_another_prompt_however_late_it_is_accepted(known: Home, agent: str) -> None:
    """By the screen file of its program, also where its profile has another name."""
    async with box(known, "holds=0.5", agent=agent) as one:
        for text in ("first", "second", "third"):
            await one.send_keys(text)
            await one.tap_enter()

        assert ["first", "second", "third"] == await given(known, 3)


async def test_an_enter_without_effect_is_reported_with_the_text_in_the_box(
    known: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with box(known, "drop=99") as one:
        await one.send_keys("say on")
        monkeypatch.setattr(terminal, "CALL_S", 3.0)
        with pytest.raises(TimedOutError, match=r"the input box of 'box' still contains 'say on' 3 s after Enter"):
            await one.tap_enter()


async def test_enter_is_not_typed_while_the_box_shows_another_text(
    known: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person has typed a draft."""
    async with box(known, "draft=mine") as one:
        await one.send_keys("say on")
        monkeypatch.setattr(terminal, "CALL_S", 0.3)
        with pytest.raises(TimedOutError, match=r"does not contain 'say on' .* Enter was not typed"):
            await one.tap_enter()

        assert "" == await asyncio.to_thread((known.path / "record").read_text)


async def test_a_text_with_a_newline_is_one_prompt_and_the_next_text_another(known: Home) -> None:
    async with box(known, "holds=0.5") as one:
        for text in ("first\nline", "second"):
            await one.send_keys(text)
            await one.tap_enter()

        assert ["first\nline", "second"] == await given(known, 2)


async def test_a_box_that_is_drawn_late_gets_each_prompt_alone(known: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later than Enter waits on a screen without a box."""
    monkeypatch.setattr(terminal, "BOX_S", 0.3)
    async with box(known, "late=0.9", "holds=0.5") as one:
        for text in ("first", "second", "third"):
            await one.send_keys(text)
            await one.tap_enter()

        assert ["first", "second", "third"] == await given(known, 3)


async def test_an_enter_without_text_waits_for_nothing(known: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with box(known) as one:
        monkeypatch.setattr(terminal, "CALL_S", 0.3)
        await one.tap_enter()
        await one.send_keys(" ")
        await one.tap_enter()
        await one.send_keys("say on")
        await one.tap_enter()

        assert [" say on"] == await given(known, 1) or ["say on"] == await given(known, 1)
