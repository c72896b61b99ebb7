"""A structured host, in this process, with an agent that the test plays."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from kasmon.backends.base import Abilities, Chunk
from kasmon.config import Limits
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    RefusedError,
    SessionEndedError,
    SessionNotFoundError,
    TimedOutError,
    UnableError,
)
from kasmon.host.rpc.connect import HostLink
from kasmon.host.rpc.frames import (
    ANSWER_S,
    CommandResult,
    DescribePane,
    ExecuteCommand,
    FromHost,
    Quit,
    ReadTerminal,
    ReleasePane,
    RenameWindow,
    SubscriptionEnded,
    TextDelta,
    Unwatch,
    Watch,
)
from kasmon.host.structured import agent_runner
from kasmon.host.structured.host import StructuredHost
from kasmon.model.commands import Interrupt, Mode, Prompt, Stop
from kasmon.model.events import (
    LogOpened,
    MessageWritten,
    NoticeRaised,
    SessionEnded,
    SessionStarted,
    ThoughtWritten,
    TurnEnded,
    UsageReported,
)
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from tests.host.house import ME, House, do, prompt
from tests.host.puppet import Puppet
from tests.model.facts import asks
from tests.waiting import auntil


def said(text: str) -> MessageWritten:
    return MessageWritten(at=time.time(), text=text)


async def started(house: House) -> None:
    await auntil(lambda: house.only(SessionStarted))


# Facts


async def test_the_log_begins_with_what_it_is(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await started(house)

    first = house.events()[0]
    assert isinstance(first, LogOpened)
    assert ME == first.session


async def test_what_the_agent_says_stands_in_the_log_in_order(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(*(said(str(number)) for number in range(200)))
        await auntil(lambda: len(house.only(MessageWritten)) == 200)

    assert [str(number) for number in range(200)] == [fact.text for fact in house.only(MessageWritten)]


async def test_a_start_says_what_only_the_host_knows(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet, house.wants(backend="puppet", workdir="/tmp")):
        await started(house)

    (start,) = house.only(SessionStarted)
    assert (1, "puppet", Mode.SDK, "/tmp", "talk-1") == (
        start.generation,
        start.backend,
        start.mode,
        start.workdir,
        start.resume_id,
    )
    assert start.host_pid


async def test_a_fact_that_cannot_be_written_down_is_a_notice_and_the_agent_goes_on(
    house: House, puppet: Puppet
) -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"deeper": deep}
    async with house.hosting(puppet):
        bad = asks()
        puppet.say(msgspec.structs.replace(bad, request=msgspec.structs.replace(bad.request, input=deep)), said("on"))
        await auntil(lambda: house.only(MessageWritten))

    assert ["error"] == [notice.level for notice in house.only(NoticeRaised)]


async def test_long_output_is_kept_beside_the_log(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(said("ä" * 400_000))
        (fact,) = await auntil(lambda: house.only(MessageWritten))

    assert max(map(len, Path(house.places.log(ME)).read_bytes().splitlines())) < 256 * 1024
    assert "ä" * 400_000 == (house.places.blobs(ME) / fact.blob).read_text("utf-8")


# Ends


async def test_an_agent_that_ends_ends_its_host(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(SessionEnded(at=time.time(), exit_code=3))
        await auntil(lambda: not house.places.socket(ME).exists())

    assert (SessionState.ENDED, 3) == (house.session().state, house.session().exit_code)
    assert puppet.closed


async def test_what_an_agent_says_after_its_end_is_no_fact(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(SessionEnded(at=time.time(), exit_code=0), said("one more"))
        await auntil(lambda: not house.places.socket(ME).exists())

    assert isinstance(house.events()[-1], SessionEnded)


async def test_an_agent_that_goes_on_after_its_end_is_not_waited_for(house: House, puppet: Puppet) -> None:
    puppet.knows_its_end = False
    async with house.hosting(puppet):
        puppet.say(SessionEnded(at=time.time(), exit_code=0))
        await auntil(lambda: not house.places.socket(ME).exists())


async def test_an_agent_whose_backend_fails_says_so_and_ends(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.say(said("so far"))
        puppet.break_down(ValueError("no such frame"))
        await auntil(lambda: house.only(SessionEnded))

    assert "no such frame" in house.only(NoticeRaised)[0].text
    assert "no such frame" in house.session().end_why
    assert house.session().crashed


async def test_an_agent_that_falls_silent_for_good_has_ended(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        puppet.hang_up()
        await auntil(lambda: house.only(SessionEnded))

    assert "ended without a message" in house.session().end_why


async def test_an_agent_that_cannot_be_started_says_why(house: House, puppet: Puppet) -> None:
    async def fails() -> None:
        raise LaunchError("cannot start 'docs': no such program.", hint="Install it.")

    puppet.on_open = fails
    async with house.hosting(puppet):
        await auntil(lambda: house.only(SessionEnded))

    assert "cannot start 'docs': no such program. Install it." == house.session().end_why
    assert (0, None) == (house.session().generation, house.session().exit_code)


async def test_a_backend_that_stumbles_while_it_opens_says_why(house: House, puppet: Puppet) -> None:
    async def fails() -> None:
        raise KeyError("model")

    puppet.on_open = fails
    async with house.hosting(puppet):
        await auntil(lambda: house.only(SessionEnded))

    assert "KeyError('model')" in house.session().end_why
    assert "KeyError('model')" in house.only(NoticeRaised)[0].text


async def test_stop_ends_the_agent_and_is_no_crash(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await started(house)
        await do(await house.linked(), Stop())
        await auntil(lambda: house.only(SessionEnded))

    assert (True, False) == (house.session().stopped, house.session().crashed)


async def test_an_agent_that_does_not_finish_is_ended(house: House, puppet: Puppet) -> None:
    async def deaf(wish: object) -> None:
        pass

    puppet.on_wish = deaf
    async with house.hosting(puppet):
        await started(house)
        await do(await house.linked(), Stop(grace_s=0))
        await auntil(lambda: house.only(SessionEnded))

    assert ("SIGKILL", True) == (house.session().signal, house.session().stopped)


async def test_a_second_stop_shortens_the_grace_of_the_first(house: House, puppet: Puppet) -> None:
    async def deaf(wish: object) -> None:
        pass

    puppet.on_wish = deaf
    async with house.hosting(puppet):
        await started(house)
        link = await house.linked()
        await do(link, Stop(grace_s=1000))
        await do(link, Stop(grace_s=0))
        await auntil(lambda: house.only(SessionEnded))


async def test_an_agent_that_cannot_be_closed_is_no_longer_waited_for(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(agent_runner, "CLOSING_S", 0.05)
    puppet.on_wish = hangs
    monkeypatch.setattr(puppet, "aclose", hangs)
    async with house.hosting(puppet):
        await started(house)
        await do(await house.linked(), Stop(grace_s=0))
        await auntil(lambda: house.only(SessionEnded))

    assert house.session().stopped


async def test_an_agent_can_be_stopped_while_it_is_being_opened(house: House, puppet: Puppet) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    puppet.on_open = hangs
    async with house.hosting(puppet):
        await do(await house.linked(), Stop())
        await auntil(lambda: house.only(SessionEnded))

    assert house.session().stopped


async def test_quit_ends_the_agent_with_its_host(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await started(house)
        assert isinstance(await (await house.linked()).ask(Quit(n=0)), CommandResult)
        await auntil(lambda: not house.places.socket(ME).exists())

    assert house.session().stopped


async def test_a_host_that_is_told_to_end_says_so(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet) as host:
        await started(house)
        host.end("its host got SIGTERM")
        await auntil(lambda: house.only(SessionEnded))

    assert "its host got SIGTERM" == house.session().end_why


# Generations


async def test_a_restart_is_the_next_generation_of_the_same_conversation(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await started(house)
    again = Puppet()
    async with house.hosting(again):
        await auntil(lambda: len(house.only(SessionStarted)) == 2)

    assert again.launch is not None
    assert (2, "talk-1") == (again.launch.generation, again.launch.resume)
    assert [1, 2] == [start.generation for start in house.only(SessionStarted)]
    assert 1 == len(house.only(LogOpened))


async def test_a_launch_may_ask_for_a_later_generation(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet, house.wants(backend="puppet", generation=5)):
        await started(house)

    assert 5 == house.session().generation


async def test_the_first_prompt_is_given_in_the_first_generation_only(house: House) -> None:
    launch = house.wants(backend="puppet", prompt="tidy up")
    first, second = Puppet(), Puppet()
    async with house.hosting(first, launch):
        await auntil(lambda: first.prompts)
    async with house.hosting(second, launch):
        await auntil(lambda: len(house.only(SessionStarted)) == 2)
        assert "submitted" == await prompt(await house.linked(), "and now?")

    assert (["tidy up"], ["and now?"]) == (first.prompts, second.prompts)


async def test_a_wave_gives_its_first_prompt_in_its_own_name(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet, house.wants(backend="puppet", prompt="tidy up", wave=1)):
        (wish,) = await auntil(lambda: puppet.told)

    assert isinstance(wish, Prompt)
    assert "wave" == wish.by


# Other wishes


async def test_an_interrupt_reaches_the_agent(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await started(house)
        await do(await house.linked(), Interrupt())
        await auntil(lambda: house.only(TurnEnded))

    assert [Interrupt] == [type(wish) for wish in puppet.told[:1]]


async def test_an_agent_that_cannot_be_interrupted_says_so(house: House, puppet: Puppet) -> None:
    puppet.abilities = Abilities()
    async with house.hosting(puppet):
        await started(house)
        with pytest.raises(UnableError):
            await do(await house.linked(), Interrupt())


async def test_a_wish_that_the_agent_does_not_take_in_time_is_said_to_be_unknown(house: House, puppet: Puppet) -> None:
    """The time is the config's `limits.call_s`; who asks is told to wait a little longer than that."""

    async def hangs(wish: object) -> None:
        await asyncio.Event().wait()

    puppet.on_wish = hangs
    async with house.hosting(puppet, limits=Limits(call_s=0.05)):
        await started(house)
        link = await house.linked()
        with pytest.raises(TimedOutError, match=r"within 0\.05 s\. It is unknown"):
            await link.ask(ExecuteCommand(n=0, session=ME, wish=Interrupt()))

    assert 0.05 < link.welcome.answer_s < 10


async def test_an_agent_that_does_not_introduce_itself_in_time_has_ended(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the config's `limits.handshake_s`; its backend is told, and has a little longer to say why."""

    async def hangs() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(agent_runner, "NET_S", 0.0)
    puppet.on_open = hangs
    async with house.hosting(puppet, limits=Limits(handshake_s=0.05)):
        await auntil(lambda: house.only(SessionEnded))

    assert "it did not initialise within 0.05 s" == house.session().end_why
    assert puppet.launch is not None
    assert 0.05 == puppet.launch.handshake_s


async def test_a_host_takes_its_limits_from_the_config(house: House) -> None:
    house.places.config.mkdir()
    house.places.config_file.write_text("[limits]\ncall_s = 77\n")
    house.wants()
    house.start()
    link = await house.linked()

    assert 77 < link.welcome.answer_s < 100
    await link.aclose()


async def test_a_config_that_cannot_be_used_keeps_no_host_from_starting(house: House) -> None:
    house.places.config.mkdir()
    house.places.config_file.write_text("[limits]\ncall_s = 'long'\n")
    house.wants()
    house.start()
    link = await house.linked()

    assert ANSWER_S < link.welcome.answer_s < 20
    assert "limits.call_s" in house.places.host_log(ME).read_text()
    await link.aclose()


async def test_a_backend_that_fails_on_a_wish_is_a_notice_and_an_error(house: House, puppet: Puppet) -> None:
    async def fails(wish: object) -> None:
        if isinstance(wish, Interrupt):
            raise AttributeError("turn")
        puppet.obey(wish)  # type: ignore[arg-type]

    puppet.on_wish = fails
    async with house.hosting(puppet):
        await started(house)
        with pytest.raises(KasmonError, match="AttributeError"):
            await do(await house.linked(), Interrupt())
        await auntil(lambda: house.only(NoticeRaised))
        assert "submitted" == await prompt(await house.linked(), "still there?")


async def test_a_wish_for_another_session_is_not_carried_here(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        with pytest.raises(SessionNotFoundError):
            await do(await house.linked(), Interrupt(), SessionId("otherone"))

    assert not any(isinstance(wish, Interrupt) for wish in puppet.told)


async def test_a_wish_while_the_agent_starts_is_refused_and_a_prompt_waits(house: House, puppet: Puppet) -> None:
    open_now = asyncio.Event()

    async def waits() -> None:
        await open_now.wait()

    puppet.on_open = waits
    async with house.hosting(puppet):
        link = await house.linked()
        with pytest.raises(RefusedError, match="still starting"):
            await do(link, Interrupt())
        assert "queued" == await prompt(link, "hello")
        open_now.set()
        await auntil(lambda: puppet.prompts == ["hello"])


async def test_there_is_no_terminal_to_look_at(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await house.linked()
        for frame in (DescribePane(n=0, session=ME), ReadTerminal(n=0, session=ME)):
            with pytest.raises(InteractiveOnlyError) as refusal:
                await link.ask(frame)
            assert ME == refusal.value.session


async def test_what_only_a_terminal_needs_is_done_at_once(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await house.linked()
        for frame in (ReleasePane(n=0, session=ME), RenameWindow(n=0, session=ME, name="tests")):
            assert isinstance(await link.ask(frame), CommandResult)


async def test_an_agent_does_not_end_its_own_host(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await HostLink.open(house.places.socket(ME), as_agent=True)
        with pytest.raises(RefusedError):
            await link.ask(Quit(n=0))


async def test_a_wish_after_the_end_is_refused(house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its host says goodbye."""
    goodbye = asyncio.Event()

    async def closes_slowly() -> None:
        await goodbye.wait()

    monkeypatch.setattr(puppet, "aclose", closes_slowly)
    async with house.hosting(puppet):
        await started(house)
        link = await house.linked()
        puppet.say(SessionEnded(at=time.time(), exit_code=0))
        await auntil(lambda: house.only(SessionEnded))
        for wish in (Prompt(text="hello"), Interrupt(), Stop()):
            with pytest.raises(SessionEndedError):
                await do(link, wish)
        goodbye.set()


# Live text


async def watching(house: House, shown: list[FromHost], rate_hz: float = 20.0) -> HostLink:
    """A link that watches the session from now on, and puts what it is shown into *shown*."""
    await started(house)
    link = await house.linked()
    link.on_push = shown.append
    link.tell(Watch(session=ME, rate_hz=rate_hz))
    return link


async def test_text_is_shown_while_it_is_written_and_forgotten_once_it_is_said(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        await watching(house, shown)
        puppet.say(Chunk(text="Hel"), Chunk(text="lo"))
        await auntil(lambda: shown[-1:] == [TextDelta(session=ME, text="Hello")])
        puppet.say(said("Hello"))
        await auntil(lambda: shown[-1:] == [TextDelta(session=ME, text="")])


async def test_who_begins_to_watch_sees_what_was_written_so_far(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        await started(house)
        puppet.say(Chunk(text="hm, ", thinking=True), UsageReported(at=1.0))
        await auntil(lambda: house.only(UsageReported))
        await watching(house, shown)
        await auntil(lambda: shown == [TextDelta(session=ME, text="hm, ", thinking=True)])


async def test_a_finished_thought_leaves_the_text_that_is_being_written(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        await watching(house, shown)
        puppet.say(
            Chunk(text="hm", thinking=True), Chunk(text="So"), ThoughtWritten(at=1.0, text="hm"), Chunk(text=" it")
        )
        await auntil(lambda: shown[-1:] == [TextDelta(session=ME, text="So it")])


async def test_a_flood_of_words_is_shown_in_few_pushes(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        await watching(house, shown, rate_hz=1000)
        began_at = time.monotonic()
        puppet.say(*(Chunk(text="word ") for _ in range(5000)))
        await auntil(lambda: shown and isinstance(shown[-1], TextDelta) and len(shown[-1].text) == 25_000)
        took_s = time.monotonic() - began_at

    assert len(shown) <= took_s * 30 + 3


async def test_who_stops_watching_hears_no_more(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        link = await watching(house, shown)
        link.tell(Unwatch(session=ME))
        with pytest.raises(InteractiveOnlyError):
            await link.ask(DescribePane(n=0, session=ME))
        heard: list[FromHost] = []
        await watching(house, heard)
        puppet.say(Chunk(text="Hello"))
        await auntil(lambda: heard)

    assert [] == shown


async def test_who_watches_is_told_that_it_is_over(house: House, puppet: Puppet) -> None:
    shown: list[FromHost] = []
    async with house.hosting(puppet):
        link = await watching(house, shown)
        puppet.say(SessionEnded(at=time.time(), why="out of tokens"))
        await auntil(lambda: not link.is_open)

    assert [SubscriptionEnded(session=ME, why="out of tokens")] == shown


# Where the host cannot listen


async def test_a_host_that_cannot_listen_starts_no_agent(house: House, puppet: Puppet) -> None:
    launch = house.wants(backend="puppet")
    house.places.runtime.rmdir()

    assert not await StructuredHost(house.places, launch, puppet).run()

    assert puppet.launch is None
    assert "cannot listen" in house.session().end_why
    house.places.make()
