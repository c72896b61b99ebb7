"""A structured host, in this process, with an agent that the test plays."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from kasmon import errors
from kasmon.backends.base import Abilities, Chunk
from kasmon.config import Limits
from kasmon.host.rpc import control, frames
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.control import ControlKind
from kasmon.host.structured import agent_runner
from kasmon.host.structured.host import StructuredHost
from kasmon.model import events
from kasmon.model.commands import Interrupt, Mode, Prompt, Requeue, Stop
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import build_image
from kasmon.model.session_state import SessionState
from tests.model.prompts.test_image import png
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env, do, prompt
from tests.support.sample_events import asks
from tests.support.wait import auntil


def said(text: str) -> events.MessageWritten:
    return events.MessageWritten(at=time.time(), text=text)


async def started(env: Env) -> None:
    await auntil(lambda: env.only(events.SessionStarted))


# Facts


async def test_the_log_starts_with_its_session(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)

    first = env.events()[0]
    assert isinstance(first, events.LogOpened)
    assert ME == first.session


async def test_messages_of_the_agent_are_logged_in_order(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(*(said(str(number)) for number in range(200)))
        await auntil(lambda: len(env.only(events.MessageWritten)) == 200)

    assert [str(number) for number in range(200)] == [fact.text for fact in env.only(events.MessageWritten)]


async def test_a_start_event_has_the_fields_that_only_the_host_knows(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake, env.wants(backend="fake", workdir="/tmp")):
        await started(env)

    (start,) = env.only(events.SessionStarted)
    assert (1, "fake", Mode.SDK, "/tmp", "talk-1") == (
        start.generation,
        start.backend,
        start.mode,
        start.workdir,
        start.resume_id,
    )
    assert start.host_pid


async def test_an_event_that_cannot_be_encoded_is_a_notice_and_the_agent_continues(env: Env, fake: FakeAgent) -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"deeper": deep}
    async with env.hosting(fake):
        bad = asks()
        fake.say(msgspec.structs.replace(bad, request=msgspec.structs.replace(bad.request, input=deep)), said("on"))
        await auntil(lambda: env.only(events.MessageWritten))

    assert ["error"] == [notice.level for notice in env.only(events.NoticeRaised)]


async def test_long_output_is_kept_beside_the_log(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(said("ä" * 400_000))
        (fact,) = await auntil(lambda: env.only(events.MessageWritten))

    assert max(map(len, Path(env.paths.log(ME)).read_bytes().splitlines())) < 256 * 1024
    assert "ä" * 400_000 == (env.paths.blobs(ME) / fact.blob).read_text("utf-8")


# Ends


async def test_an_agent_that_ends_ends_its_host(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(events.SessionEnded(at=time.time(), exit_code=3))
        await auntil(lambda: not env.paths.socket(ME).exists())

    assert (SessionState.ENDED, 3) == (env.session().state, env.session().exit_code)
    assert fake.closed


async def test_messages_of_an_agent_after_its_end_are_not_logged(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(events.SessionEnded(at=time.time(), exit_code=0), said("one more"))
        await auntil(lambda: not env.paths.socket(ME).exists())

    assert isinstance(env.events()[-1], events.SessionEnded)


async def test_an_agent_that_continues_after_its_end_is_not_waited_for(env: Env, fake: FakeAgent) -> None:
    fake.knows_its_end = False
    async with env.hosting(fake):
        fake.say(events.SessionEnded(at=time.time(), exit_code=0))
        await auntil(lambda: not env.paths.socket(ME).exists())


async def test_an_agent_whose_backend_fails_reports_it_and_ends(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.say(said("so far"))
        fake.break_down(ValueError("no such frame"))
        await auntil(lambda: env.only(events.SessionEnded))

    assert "no such frame" in env.only(events.NoticeRaised)[0].text
    assert "no such frame" in env.session().end_why
    assert env.session().crashed


async def test_an_agent_whose_stream_ends_has_ended(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        fake.hang_up()
        await auntil(lambda: env.only(events.SessionEnded))

    assert "ended without a message" in env.session().end_why


async def test_an_agent_that_cannot_start_gives_the_reason(env: Env, fake: FakeAgent) -> None:
    async def fails() -> None:
        raise errors.LaunchError("cannot start 'docs': no such program.", hint="Install it.")

    fake.on_open = fails
    async with env.hosting(fake):
        await auntil(lambda: env.only(events.SessionEnded))

    assert "cannot start 'docs': no such program. Install it." == env.session().end_why
    assert (0, None) == (env.session().generation, env.session().exit_code)


async def test_a_backend_that_fails_while_starting_gives_the_reason(env: Env, fake: FakeAgent) -> None:
    async def fails() -> None:
        raise KeyError("model")

    fake.on_open = fails
    async with env.hosting(fake):
        await auntil(lambda: env.only(events.SessionEnded))

    assert "KeyError('model')" in env.session().end_why
    assert "KeyError('model')" in env.only(events.NoticeRaised)[0].text


async def test_stop_ends_the_agent_and_is_no_crash(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)
        await do(await env.linked(), Stop())
        await auntil(lambda: env.only(events.SessionEnded))

    assert (True, False) == (env.session().stopped, env.session().crashed)


async def test_an_agent_that_does_not_exit_is_killed(env: Env, fake: FakeAgent) -> None:
    async def deaf(wish: object) -> None:
        pass

    fake.on_wish = deaf
    async with env.hosting(fake):
        await started(env)
        await do(await env.linked(), Stop(grace_s=0))
        await auntil(lambda: env.only(events.SessionEnded))

    assert ("SIGKILL", True) == (env.session().signal, env.session().stopped)


async def test_a_second_stop_shortens_the_grace_of_the_first(env: Env, fake: FakeAgent) -> None:
    async def deaf(wish: object) -> None:
        pass

    fake.on_wish = deaf
    async with env.hosting(fake):
        await started(env)
        link = await env.linked()
        await do(link, Stop(grace_s=1000))
        await do(link, Stop(grace_s=0))
        await auntil(lambda: env.only(events.SessionEnded))


async def test_an_agent_that_cannot_be_closed_is_no_longer_waited_for(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(agent_runner, "CLOSING_S", 0.05)
    fake.on_wish = hangs
    monkeypatch.setattr(fake, "aclose", hangs)
    async with env.hosting(fake):
        await started(env)
        await do(await env.linked(), Stop(grace_s=0))
        await auntil(lambda: env.only(events.SessionEnded))

    assert env.session().stopped


async def test_an_agent_can_be_stopped_while_it_is_being_opened(env: Env, fake: FakeAgent) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    fake.on_open = hangs
    async with env.hosting(fake):
        await do(await env.linked(), Stop())
        await auntil(lambda: env.only(events.SessionEnded))

    assert env.session().stopped


async def test_quit_ends_the_agent_with_its_host(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)
        assert isinstance(await (await env.linked()).ask(frames.Quit(n=0)), frames.CommandResult)
        await auntil(lambda: not env.paths.socket(ME).exists())

    assert env.session().stopped


async def test_a_host_that_is_ended_logs_the_reason(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake) as host:
        await started(env)
        host.end("its host got SIGTERM")
        await auntil(lambda: env.only(events.SessionEnded))

    assert "its host got SIGTERM" == env.session().end_why


# Generations


async def test_a_restart_is_the_next_generation_of_the_same_conversation(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)
    again = FakeAgent()
    async with env.hosting(again):
        await auntil(lambda: len(env.only(events.SessionStarted)) == 2)

    assert again.launch is not None
    assert (2, "talk-1") == (again.launch.generation, again.launch.resume)
    assert [1, 2] == [start.generation for start in env.only(events.SessionStarted)]
    assert 1 == len(env.only(events.LogOpened))


async def test_a_launch_may_ask_for_a_later_generation(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake, env.wants(backend="fake", generation=5)):
        await started(env)

    assert 5 == env.session().generation


async def test_the_first_prompt_is_sent_in_the_first_generation_only(env: Env) -> None:
    launch = env.wants(backend="fake", prompt="tidy up")
    first, second = FakeAgent(), FakeAgent()
    async with env.hosting(first, launch):
        await auntil(lambda: first.prompts)
    async with env.hosting(second, launch):
        await auntil(lambda: len(env.only(events.SessionStarted)) == 2)
        assert "submitted" == await prompt(await env.linked(), "and now?")

    assert (["tidy up"], ["and now?"]) == (first.prompts, second.prompts)


async def test_a_wave_is_the_origin_of_its_first_prompt(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake, env.wants(backend="fake", prompt="tidy up", wave=1)):
        (wish,) = await auntil(lambda: fake.told)

    assert isinstance(wish, Prompt)
    assert "wave" == wish.by


# Other wishes


async def test_an_interrupt_reaches_the_agent(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)
        await do(await env.linked(), Interrupt())
        await auntil(lambda: env.only(events.TurnEnded))

    assert [Interrupt] == [type(wish) for wish in fake.told[:1]]


async def test_an_agent_that_cannot_be_interrupted_reports_that(env: Env, fake: FakeAgent) -> None:
    fake.abilities = Abilities()
    async with env.hosting(fake):
        await started(env)
        with pytest.raises(errors.UnableError):
            await do(await env.linked(), Interrupt())


async def test_a_command_that_the_agent_does_not_accept_in_time_is_reported_as_unknown(
    env: Env, fake: FakeAgent
) -> None:
    """The time is the config's `limits.call_s`; who asks is told to wait a little longer than that."""

    async def hangs(wish: object) -> None:
        await asyncio.Event().wait()

    fake.on_wish = hangs
    async with env.hosting(fake, limits=Limits(call_s=0.05)):
        await started(env)
        link = await env.linked()
        with pytest.raises(errors.TimedOutError, match=r"within 0\.05 s\. It is unknown"):
            await link.ask(frames.ExecuteCommand(n=0, session=ME, command=Interrupt()))

    assert 0.05 < link.welcome.answer_s < 10


async def test_an_agent_that_does_not_introduce_itself_in_time_has_ended(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the config's `limits.handshake_s`; its backend is told, and has a little longer to say why."""

    async def hangs() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(agent_runner, "NET_S", 0.0)
    fake.on_open = hangs
    async with env.hosting(fake, limits=Limits(handshake_s=0.05)):
        await auntil(lambda: env.only(events.SessionEnded))

    assert "it did not initialise within 0.05 s" == env.session().end_why
    assert fake.launch is not None
    assert 0.05 == fake.launch.handshake_s


async def test_a_host_has_the_limits_of_the_config(env: Env) -> None:
    env.paths.config.mkdir()
    env.paths.config_file.write_text("[limits]\ncall_s = 77\n")
    env.wants()
    env.start()
    link = await env.linked()

    assert 77 < link.welcome.answer_s < 100
    await link.aclose()


async def test_a_config_that_cannot_be_used_keeps_no_host_from_starting(env: Env) -> None:
    env.paths.config.mkdir()
    env.paths.config_file.write_text("[limits]\ncall_s = 'long'\n")
    env.wants()
    env.start()
    link = await env.linked()

    assert frames.ANSWER_S < link.welcome.answer_s < 20
    assert "limits.call_s" in env.paths.host_log(ME).read_text()
    await link.aclose()


async def test_a_backend_that_fails_on_a_command_is_a_notice_and_an_error(env: Env, fake: FakeAgent) -> None:
    async def fails(wish: object) -> None:
        if isinstance(wish, Interrupt):
            raise AttributeError("turn")
        fake.obey(wish)  # type: ignore[arg-type]

    fake.on_wish = fails
    async with env.hosting(fake):
        await started(env)
        with pytest.raises(errors.KasmonError, match="AttributeError"):
            await do(await env.linked(), Interrupt())
        await auntil(lambda: env.only(events.NoticeRaised))
        assert "submitted" == await prompt(await env.linked(), "still there?")


async def test_a_command_for_another_session_is_refused(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        with pytest.raises(errors.SessionNotFoundError):
            await do(await env.linked(), Interrupt(), SessionId("otherone"))

    assert not any(isinstance(wish, Interrupt) for wish in fake.told)


async def test_a_command_while_the_agent_starts_is_refused_and_a_prompt_waits(env: Env, fake: FakeAgent) -> None:
    open_now = asyncio.Event()

    async def waits() -> None:
        await open_now.wait()

    fake.on_open = waits
    async with env.hosting(fake):
        link = await env.linked()
        with pytest.raises(errors.RefusedError, match="still starting"):
            await do(link, Interrupt())
        assert "queued" == await prompt(link, "hello")
        open_now.set()
        await auntil(lambda: fake.prompts == ["hello"])


async def test_a_structured_session_has_no_terminal(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await env.linked()
        for frame in (frames.DescribePane(n=0, session=ME), frames.ReadTerminal(n=0, session=ME)):
            with pytest.raises(errors.InteractiveOnlyError) as refusal:
                await link.ask(frame)
            assert ME == refusal.value.session


async def test_terminal_only_commands_return_at_once(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await env.linked()
        for frame in (frames.ReleasePane(n=0, session=ME), frames.RenameWindow(n=0, session=ME, name="tests")):
            assert isinstance(await link.ask(frame), frames.CommandResult)


async def test_an_agent_cannot_end_its_own_host(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await HostLink.open(env.paths.socket(ME), as_agent=True)
        with pytest.raises(errors.RefusedError):
            await link.ask(frames.Quit(n=0))


async def test_a_command_after_the_end_is_refused(env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its host says goodbye."""
    goodbye = asyncio.Event()

    async def closes_slowly() -> None:
        await goodbye.wait()

    monkeypatch.setattr(fake, "aclose", closes_slowly)
    async with env.hosting(fake):
        await started(env)
        link = await env.linked()
        fake.say(events.SessionEnded(at=time.time(), exit_code=0))
        await auntil(lambda: env.only(events.SessionEnded))
        for wish in (Prompt(text="hello"), Interrupt(), Stop()):
            with pytest.raises(errors.SessionEndedError):
                await do(link, wish)
        goodbye.set()


# Live text


async def watching(env: Env, shown: list[frames.FromHost], rate_hz: float = 20.0) -> HostLink:
    """A link that watches the session from now on, and puts what it is shown into *shown*."""
    await started(env)
    link = await env.linked()
    link.on_push = shown.append
    link.send(frames.Watch(session=ME, rate_hz=rate_hz))
    return link


async def test_text_is_shown_while_it_is_streamed_and_dropped_once_it_is_logged(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        await watching(env, shown)
        fake.say(Chunk(text="Hel"), Chunk(text="lo"))
        await auntil(lambda: shown[-1:] == [frames.TextDelta(session=ME, text="Hello")])
        fake.say(said("Hello"))
        await auntil(lambda: shown[-1:] == [frames.TextDelta(session=ME, text="")])


async def test_a_new_watcher_gets_the_text_streamed_so_far(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        await started(env)
        fake.say(Chunk(text="hm, ", thinking=True), events.UsageReported(at=1.0))
        await auntil(lambda: env.only(events.UsageReported))
        await watching(env, shown)
        await auntil(lambda: shown == [frames.TextDelta(session=ME, text="hm, ", thinking=True)])


async def test_a_finished_thought_keeps_the_streamed_text(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        await watching(env, shown)
        fake.say(
            Chunk(text="hm", thinking=True),
            Chunk(text="So"),
            events.ThoughtWritten(at=1.0, text="hm"),
            Chunk(text=" it"),
        )
        await auntil(lambda: shown[-1:] == [frames.TextDelta(session=ME, text="So it")])


async def test_a_flood_of_text_is_sent_in_few_pushes(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        await watching(env, shown, rate_hz=1000)
        began_at = time.monotonic()
        fake.say(*(Chunk(text="word ") for _ in range(5000)))
        await auntil(lambda: shown and isinstance(shown[-1], frames.TextDelta) and len(shown[-1].text) == 25_000)
        took_s = time.monotonic() - began_at

    assert len(shown) <= took_s * 30 + 3


async def test_a_client_that_stops_watching_gets_no_more_pushes(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        link = await watching(env, shown)
        link.send(frames.Unwatch(session=ME))
        with pytest.raises(errors.InteractiveOnlyError):
            await link.ask(frames.DescribePane(n=0, session=ME))
        heard: list[frames.FromHost] = []
        await watching(env, heard)
        fake.say(Chunk(text="Hello"))
        await auntil(lambda: heard)

    assert [] == shown


async def test_a_watcher_is_notified_of_the_end(env: Env, fake: FakeAgent) -> None:
    shown: list[frames.FromHost] = []
    async with env.hosting(fake):
        link = await watching(env, shown)
        fake.say(events.SessionEnded(at=time.time(), why="out of tokens"))
        await auntil(lambda: not link.is_open)

    assert [frames.SubscriptionEnd(session=ME, why="out of tokens")] == shown


# Where the host cannot listen


async def test_a_host_that_cannot_listen_starts_no_agent(env: Env, fake: FakeAgent) -> None:
    launch = env.wants(backend="fake")
    env.paths.runtime.rmdir()

    assert not await StructuredHost(env.paths, launch, fake).run()

    assert fake.launch is None
    assert "cannot listen" in env.session().end_why
    env.paths.make()


# Pictures


async def test_the_pictures_of_a_prompt_reach_the_agent_and_their_content_is_not_in_the_log(
    env: Env, fake: FakeAgent
) -> None:
    fake.abilities = msgspec.structs.replace(fake.abilities, receives_images=True)
    image = build_image("cat.png", png(4, 3))
    async with env.hosting(fake):
        link = await env.linked()
        await started(env)
        await do(link, Prompt(text="look", images=(image,)))
        await auntil(lambda: any(isinstance(each, Prompt) for each in fake.told))

    (told,) = [each for each in fake.told if isinstance(each, Prompt)]
    (sent,) = told.images
    assert (image.data, image.data) == (sent.data, Path(sent.path).read_bytes())
    logged = [each for fact in env.only(events.ReceiptChanged) for each in fact.images]
    assert [msgspec.structs.replace(image, data=b"")] == logged


async def test_a_queued_prompt_keeps_its_pictures_when_its_text_is_edited(env: Env, fake: FakeAgent) -> None:
    fake.abilities = msgspec.structs.replace(fake.abilities, receives_images=True)
    image = build_image("cat.png", png(4, 3))
    async with env.hosting(fake):
        link = await env.linked()
        await started(env)
        await do(link, Prompt(text="first"))
        await auntil(lambda: env.only(events.TurnStarted))
        queued = await do(link, Prompt(text="look", when="idle", images=(image,)))
        assert queued.receipt is not None
        await do(link, Requeue(receipt=queued.receipt.id, text="look again"))
        fake.say(events.TurnEnded(at=time.time()))
        await auntil(lambda: len([each for each in fake.told if isinstance(each, Prompt)]) == 2)

    last = [each for each in fake.told if isinstance(each, Prompt)][-1]
    assert ("look again", [image.data]) == (last.text, [each.data for each in last.images])


async def test_an_agent_that_accepts_no_pictures_refuses_them_and_a_false_one_is_refused_too(
    env: Env, fake: FakeAgent
) -> None:
    image = build_image("cat.png", png(4, 3))
    async with env.hosting(fake):
        link = await env.linked()
        await started(env)
        with pytest.raises(errors.UnableError, match="accepts no pictures"):
            await do(link, Prompt(text="look", images=(image,)))
        fake.abilities = msgspec.structs.replace(fake.abilities, receives_images=True)
        with pytest.raises(errors.UsageError, match="is no PNG"):
            await do(link, Prompt(text="look", images=(msgspec.structs.replace(image, data=b"#!/bin/sh"),)))

    assert [] == [each for each in fake.told if isinstance(each, Prompt)]


# A hand over


async def test_a_command_of_the_user_ends_when_its_host_hands_over(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await started(env)
        link, printed = await env.linked(), list[object]()
        link.on_push = printed.append
        command = frames.RunShellCommand(n=0, session=ME, command="echo up; exec sleep 600")
        answer = asyncio.create_task(link.ask(command, 20))
        await auntil(lambda: printed or answer.done())
        await asyncio.to_thread(control.request, env.paths.socket(ME), ControlKind.HAND_OVER)

        with pytest.raises(errors.UnableError, match="is being replaced by one of another version"):
            await answer
        await auntil(lambda: env.only(events.SessionEnded))
        link.close()
