"""A request is answered once, by a person, and only as it was shown."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from kasmon import errors
from kasmon.backends.base import Abilities
from kasmon.config import Limits
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.model import events
from kasmon.model.commands import AgentCommand, Allow, Answer, Configure, Prompt
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, seal
from kasmon.model.session_state import SessionState
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.host.env import ME, Env, do, prompt
from tests.support.wait import auntil


def question(*options: str, many: bool = False) -> events.RequestOpened:
    return asked("Which?", kind=RequestKind.QUESTION, choices=(Decision.CHOOSE,), options=options, many=many)


async def asking(env: Env, fake: FakeAgent, *opened: events.RequestOpened) -> tuple[HostLink, list[Request]]:
    """An agent in a turn that has asked *opened*; what of it is open in the log."""
    link = await env.linked()
    await prompt(link, "tidy up")
    fake.say(*opened)
    await auntil(lambda: len(env.only(events.RequestOpened)) == len(opened))
    return link, list(env.session().requests)


def answer(request: Request, decision: Decision = Decision.ALLOW, **more: Any) -> Answer:
    return Answer(request=request.id, digest=request.digest, decision=decision, **more)


def answers(fake: FakeAgent) -> list[Answer]:
    return [wish for wish in fake.told if isinstance(wish, Answer)]


async def test_the_log_numbers_requests_and_seals_them(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        _, requests = await asking(env, fake, asked(), asked("make", "tool-8"))

    assert [f"{ME}-1", f"{ME}-2"] == [request.id for request in requests]
    assert requests == [seal(request) for request in requests]
    assert {ME} == {request.session for request in requests}


async def test_an_answer_reaches_the_agent_with_its_own_id_of_the_request(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        own = asked("make", "tool-8")
        own = msgspec.structs.replace(own, request=msgspec.structs.replace(own.request, digest="of-the-agent"))
        link, (first, second) = await asking(env, fake, asked(), own)
        await do(link, answer(second, Decision.DENY, reason="not now"))

    [sent] = answers(fake)
    assert ("tool-8", "of-the-agent", Decision.DENY, "not now") == (
        sent.request,
        sent.digest,
        sent.decision,
        sent.reason,
    )
    assert [second.id] == [fact.request for fact in env.only(events.RequestAnswered)]
    assert first.id not in {fact.request for fact in env.only(events.RequestAnswered)}


async def test_an_answer_is_in_the_log_before_the_agent_gets_it(env: Env, fake: FakeAgent) -> None:
    seen: list[tuple[int, int]] = []

    async def looks(wish: AgentCommand) -> None:
        if isinstance(wish, Answer):
            unwritten = host._log_writer.session_log.unwritten
            seen.append((unwritten, len(await asyncio.to_thread(env.only, events.RequestAnswered))))
        fake.obey(wish)

    fake.on_wish = looks
    async with env.hosting(fake) as host:
        link, (request,) = await asking(env, fake, asked())
        await do(link, answer(request))

    assert [(0, 1)] == seen


async def test_a_request_is_answered_once(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        await do(link, answer(request))
        with pytest.raises(errors.RequestClosedError) as refusal:
            await do(link, answer(request, Decision.DENY))

    assert f"user at process {os.getpid()} answered allow" in refusal.value.how.replace("terminal", "process")
    assert 1 == len(answers(fake))


async def test_exactly_one_of_two_simultaneous_answers_is_accepted(env: Env, fake: FakeAgent) -> None:
    """Each time with two clients; `test_process_deaths` has a hundred such races with a host of its own."""
    async with env.hosting(fake):
        links = [await env.linked(), await env.linked()]
        await prompt(links[0], "tidy up")
        for n in range(25):
            fake.say(asked(f"make {n}", f"tool-{n}"))
            (request,) = await auntil(lambda: env.session().requests)
            wishes = [answer(request, Decision.ALLOW), answer(request, Decision.DENY)]
            outcomes = await asyncio.gather(
                *(do(link, wish) for link, wish in zip(links, wishes, strict=True)), return_exceptions=True
            )
            assert [errors.RequestClosedError] == [type(o) for o in outcomes if isinstance(o, BaseException)], outcomes
            assert n + 1 == len(answers(fake)) == len(env.only(events.RequestAnswered))


@pytest.mark.parametrize("unknown", [f"{ME}-9", "otherone-1", "nonsense"])
async def test_an_unknown_request_is_not_found(env: Env, fake: FakeAgent, unknown: str) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.RequestNotFoundError):
            await do(link, answer(msgspec.structs.replace(request, id=RequestId(unknown))))

    assert [] == answers(fake)


async def test_an_answer_to_another_text_than_the_requested_one_is_stale(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.StaleRequestError):
            await do(link, answer(msgspec.structs.replace(request, digest="0" * 64)))

        assert (request,) == env.session().requests
    assert [] == answers(fake)


async def test_a_changed_request_is_a_new_one_and_the_old_one_is_withdrawn(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (old, new) = await _changed(env, fake)
        with pytest.raises(errors.RequestClosedError) as refusal:
            await do(link, answer(old))
        await do(link, answer(new))

    assert "the agent has a different request now" == refusal.value.how
    assert "rm -r /" == new.shown


async def _changed(env: Env, fake: FakeAgent) -> tuple[HostLink, tuple[Request, Request]]:
    link, (old,) = await asking(env, fake, asked())
    fake.say(asked("rm -r /"))
    await auntil(lambda: len(env.only(events.RequestOpened)) == 2)
    (new,) = env.session().requests
    return link, (old, new)


async def test_a_request_that_is_opened_twice_is_one(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        fake.say(asked(), asked("make", "tool-8"))
        await auntil(lambda: len(env.session().requests) == 2)
        await do(link, answer(request))

    assert 2 == len(env.only(events.RequestOpened))


async def test_an_agent_may_reuse_an_id_once_its_request_is_closed(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (first,) = await asking(env, fake, asked())
        await do(link, answer(first))
        fake.say(asked("rm -r /"))
        (second,) = await auntil(lambda: env.session().requests)
        assert f"{ME}-2" == second.id
        with pytest.raises(errors.RequestClosedError):
            await do(link, answer(first))
        fake.say(events.RequestWithdrawn(at=1.0, request=RequestId("tool-7")))
        await auntil(lambda: not env.session().requests)

    assert 1 == len(answers(fake))
    assert [second.id] == [fact.request for fact in env.only(events.RequestWithdrawn)]


async def test_a_dismissed_request_stays_open_and_can_still_be_answered(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        await do(link, answer(request, Decision.LATER))
        assert [True] == [ask.later for ask in env.session().requests]
        assert [] == answers(fake)
        await do(link, answer(request))

    assert 1 == len(env.only(events.RequestSetAside)) == len(answers(fake))


async def test_a_withdrawn_request_accepts_no_answer(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        fake.say(events.RequestWithdrawn(at=1.0, request=RequestId("tool-7"), why="interrupted"))
        await auntil(lambda: not env.session().requests)
        with pytest.raises(errors.RequestClosedError) as refusal:
            await do(link, answer(request))

    assert "interrupted" == refusal.value.how


@pytest.mark.parametrize("over", [events.TurnEnded(at=1.0), events.SessionEnded(at=1.0)], ids=["turn", "session"])
async def test_the_end_of_a_session_closes_its_requests(
    env: Env, fake: FakeAgent, over: events.TurnEnded | events.SessionEnded
) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        fake.say(over)
        with pytest.raises(errors.KasmonError):
            await _until_closed(env, link, request)

    assert [] == answers(fake)


async def _until_closed(env: Env, link: HostLink, request: Request) -> None:
    await auntil(lambda: not env.session().requests)
    await do(link, answer(request))


async def test_a_decision_that_was_not_offered_is_refused(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked(choices=(Decision.ALLOW, Decision.DENY)))
        with pytest.raises(errors.RefusedError, match="does not accept edit"):
            await do(link, answer(request, Decision.EDIT, input={"command": "ls"}))
        assert (request,) == env.session().requests


async def test_an_edited_input_may_hold_whatever_json_can(env: Env, fake: FakeAgent) -> None:
    edited = {
        "command": "make",
        "big": 10**40,
        "small": -(2**64),
        "half": "\ud800",
        "real": 1e308,
        "deep": [[[{"a": [None, True]}]]],
    }
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        await do(link, answer(request, Decision.EDIT, input=edited))

    assert [edited] == [told.input for told in answers(fake)]
    [fact] = env.only(events.RequestAnswered)
    assert fact.input is not None
    assert edited.keys() == fact.input.keys()


async def test_the_approved_input_is_logged_without_secrets_and_as_a_diff(env: Env, fake: FakeAgent) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz123456"
    hidden = f"⟨hidden: {len(key)} characters⟩"
    async with env.hosting(fake):
        opened = asked(input={"command": f"curl -H {key} http://a", "description": "fetch"}, required=("command",))
        link, (request,) = await asking(env, fake, opened)
        edited = {"command": f"curl -H {hidden} http://b\nmake"}
        await do(link, answer(request, Decision.EDIT, input=edited))

    assert [f"curl -H {key} http://b\nmake"] == [told.input and told.input["command"] for told in answers(fake)]
    [fact] = env.only(events.RequestAnswered)
    assert edited == fact.input
    removed = ("-command: curl -H " + hidden + " http://a", "-description: fetch")
    added = ("+command:", f"+  curl -H {hidden} http://b", "+  make")
    assert [*removed, *added] == fact.diff.split("\n")[1:]
    [closed] = env.session().closed
    assert fact.diff == closed.diff
    assert key not in env.paths.log(ME).read_text()


async def test_an_edited_request_carries_its_new_input(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.UsageError, match="new input"):
            await do(link, answer(request, Decision.EDIT))
        await do(link, answer(request, Decision.EDIT, input={"command": "rm -r build/tmp"}))

    assert [{"command": "rm -r build/tmp"}] == [a.input for a in answers(fake)]


@pytest.mark.parametrize(
    ("labels", "many", "error"),
    [
        ((), False, "requires a choice"),
        (("red", "blue"), False, "one choice"),
        (("green",), False, "no choice 'green'"),
        (("red", "red"), True, "twice"),
        (("red",), False, ""),
        (("red", "blue"), True, ""),
    ],
    ids=["none", "two of one", "unknown", "twice", "one", "several"],
)
async def test_a_choice_must_be_one_of_those_offered(
    env: Env, fake: FakeAgent, labels: tuple[str, ...], many: bool, error: str
) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, question("red", "blue", many=many))
        wish = answer(request, Decision.CHOOSE, labels=labels)
        if error:
            with pytest.raises(errors.UsageError, match=error):
                await do(link, wish)
        else:
            await do(link, wish)

    assert ([] if error else [labels]) == [a.labels for a in answers(fake)]


async def test_a_question_without_free_text_reports_that(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, question("red", "blue"))
        with pytest.raises(errors.UsageError, match="accepts no custom answer"):
            await do(link, answer(request, Decision.CHOOSE, text="green"))

    assert [] == answers(fake)


async def test_an_edited_input_must_not_be_empty(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked(input={}))
        with pytest.raises(errors.UsageError, match="is empty"):
            await do(link, answer(request, Decision.EDIT, input={}))

    assert [] == answers(fake)


@pytest.mark.parametrize(
    "key",
    [
        "sk-abcdefghijklmnopqrstuvwxyz123456",
        "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 4 + "\n-----END RSA PRIVATE KEY-----",
    ],
    ids=["a token", "lines"],
)
async def test_a_secret_that_an_edit_left_unchanged_is_no_difference(env: Env, fake: FakeAgent, key: str) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked(input={"command": "make", "key": key}))
        await do(link, answer(request, Decision.EDIT, input={"command": "make check", "key": key}))

    [fact] = env.only(events.RequestAnswered)
    assert ["-command: make", "+command: make check"] == [row for row in fact.diff.split("\n") if row[:1] in "+-"]
    assert max(key.split("\n"), key=len) not in env.paths.log(ME).read_text()


async def test_an_open_question_accepts_any_text(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, question())
        with pytest.raises(errors.UsageError, match="no choice 'whatever you like'"):
            await do(link, answer(request, Decision.CHOOSE, labels=("whatever you like",)))
        await do(link, answer(request, Decision.CHOOSE, text="whatever you like"))

    assert [("whatever you like",)] == [a.labels for a in answers(fake)]
    assert [("whatever you like",)] == [fact.labels for fact in env.only(events.RequestAnswered)]


@pytest.mark.parametrize(
    ("decision", "more", "error"),
    [
        (Decision.ALLOW, {"input": {"command": "true"}}, "'allow' accepts no input"),
        (Decision.LATER, {"input": {"command": "true"}}, "'later' accepts no input"),
        (Decision.DENY, {"labels": ("red",)}, "'deny' accepts no choice"),
        (Decision.ALLOW, {"text": "but carefully"}, "'allow' accepts no text"),
        (Decision.ALLOW, {"reason": "but carefully"}, "'allow' accepts no reason"),
        (Decision.ALLOW, {"scope": "project"}, "'allow' accepts no scope"),
        (Decision.EDIT, {"input": {}}, "lacks 'command', 'timeout'"),
        (Decision.EDIT, {"input": {"timeout": 5}}, "lacks 'command'"),
        (Decision.EDIT, {"input": {"command": "make", "timeout": None}}, "lacks 'timeout'"),
        (Decision.EDIT, {"input": {"command": " ", "timeout": 5}}, "lacks 'command'"),
    ],
)
async def test_an_answer_with_a_missing_or_extra_part_is_refused_and_nothing_is_sent(
    env: Env, fake: FakeAgent, decision: Decision, more: dict[str, Any], error: str
) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked(input={"command": "make", "timeout": 60}))
        with pytest.raises(errors.UsageError, match=error):
            await do(link, answer(request, decision, **more))

    assert [] == answers(fake)
    assert [] == env.only(events.RequestAnswered)


async def test_an_edit_of_a_known_tool_must_keep_only_its_required_fields(env: Env, fake: FakeAgent) -> None:
    opened = asked(input={"command": "make", "timeout": 60}, required=("command",))
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, opened)
        await do(link, answer(request, Decision.EDIT, input={"command": "make check"}))

    assert [{"command": "make check"}] == [told.input for told in answers(fake)]


async def test_a_plan_without_a_text_is_reported_to_the_user(env: Env, fake: FakeAgent) -> None:
    opened = asked("", kind=RequestKind.PLAN, shown=" \n", choices=(Decision.ALLOW, Decision.DENY))
    async with env.hosting(fake):
        _, (request,) = await asking(env, fake, opened)

    assert "The agent sent no plan text." == request.shown
    assert seal(request) == request


async def test_a_request_that_only_its_terminal_can_answer_reports_that(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked(answerable=False))
        with pytest.raises(errors.UnableError, match="terminal"):
            await do(link, answer(request))


async def test_an_agent_without_answers_reports_that(env: Env, fake: FakeAgent) -> None:
    fake.abilities = Abilities()
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.UnableError):
            await do(link, answer(request))


# Where the agent does not take it


def on_answer(fake: FakeAgent, error: Exception | None) -> None:
    async def react(wish: AgentCommand) -> None:
        if isinstance(wish, Answer):
            if error is None:
                await asyncio.Event().wait()
            else:
                raise error
        fake.obey(wish)

    fake.on_wish = react


async def test_an_answer_that_the_agent_refuses_reopens_the_request(env: Env, fake: FakeAgent) -> None:
    on_answer(fake, errors.RefusedError("not in this mode."))
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.RefusedError, match="not in this mode"):
            await do(link, answer(request))
        (again,) = await auntil(lambda: env.session().requests)
        await auntil(lambda: env.only(events.NoticeRaised))
        fake.on_wish = None
        await do(link, answer(again))

    assert (f"{ME}-2", request.digest) == (again.id, again.digest)
    assert ["tool-7", "tool-7"] == [a.request for a in answers(fake)]


async def test_a_reopened_request_can_be_withdrawn(env: Env, fake: FakeAgent) -> None:
    on_answer(fake, errors.RefusedError("not in this mode."))
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.RefusedError):
            await do(link, answer(request))
        fake.say(events.RequestWithdrawn(at=1.0, request=RequestId("tool-7"), why="interrupted"))
        await auntil(lambda: env.only(events.RequestWithdrawn))

        assert ([f"{ME}-2"], ()) == ([w.request for w in env.only(events.RequestWithdrawn)], env.session().requests)


async def test_an_answer_that_comes_too_late_for_the_agent_is_closed(env: Env, fake: FakeAgent) -> None:
    on_answer(fake, errors.RequestClosedError("tool-7", "interrupted"))
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        with pytest.raises(errors.RequestClosedError) as refusal:
            await do(link, answer(request))
        await auntil(lambda: env.only(events.NoticeRaised))

    assert request.id == refusal.value.request
    assert () == env.session().requests


async def test_an_answer_without_an_acknowledgement_is_reported_as_unknown(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake, limits=Limits(call_s=0.5)):
        link, (request,) = await asking(env, fake, asked())
        on_answer(fake, None)
        with pytest.raises(errors.TimedOutError):
            await do(link, answer(request))
        (notice,) = await auntil(lambda: env.only(events.NoticeRaised))

    assert "unknown" in notice.text
    assert () == env.session().requests


async def test_a_restart_closes_requests_of_the_earlier_generation(env: Env, fake: FakeAgent) -> None:
    """Also before the new agent has said a word."""
    async with env.hosting(fake):
        _, (request,) = await asking(env, fake, asked())
        log = env.paths.log(ME).read_bytes()
    env.paths.log(ME).write_bytes(log)  # as if the host had been killed: no end was written
    slow = FakeAgent()
    opening = asyncio.Event()
    slow.on_open = opening.wait  # type: ignore[assignment]
    async with env.hosting(slow):
        with pytest.raises(errors.RequestClosedError):
            await do(await env.linked(), answer(request))
        opening.set()
        await auntil(lambda: not env.session().requests)

    assert [] == answers(slow)
    assert SessionState.ENDED is env.session().state


# Who may answer


async def test_a_client_that_identifies_itself_as_an_agent_may_prompt_but_not_answer(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        _, (request,) = await asking(env, fake, asked())
        link = await HostLink.open(env.paths.socket(ME), as_agent=True)
        with pytest.raises(errors.RefusedError, match="agent cannot answer"):
            await do(link, answer(request))
        await do(link, Prompt(text="hello", by="peer"))

    assert [] == answers(fake)


@pytest.mark.parametrize(
    "wish",
    [Configure(permission_mode="plan"), Configure(switches={"yolo": True}), Allow(hosts=("example.com",))],
)
async def test_an_agent_may_not_change_the_permission_mode_or_the_allowed_hosts(
    env: Env, fake: FakeAgent, wish: Configure | Allow
) -> None:
    """Of its own session or of another: the guard is that of an answer. A person may."""
    fake.abilities = Abilities(sets_model=True, sets_permission_mode=True)
    async with env.hosting(fake):
        fake.say(events.SettingsChanged(at=1.0, switches=(events.AgentSwitch(id="yolo"),)))
        await auntil(lambda: env.session().state is SessionState.IDLE and env.session().switches)
        link = await HostLink.open(env.paths.socket(ME), as_agent=True)
        with pytest.raises(
            errors.RefusedError,
            match=r"an agent cannot (?:change a permission mode|change an option of an agent|allow network access)",
        ):
            await do(link, wish)
        for marked in (True, False):
            said = await asyncio.to_thread(_commanded_by_a_child, env, wish, marked)
            assert said.startswith("an agent cannot ")
        assert [] == [each for each in fake.told if isinstance(each, type(wish))]

        if isinstance(wish, Configure):
            await do(await env.linked(), wish)
            assert [wish] == [each for each in fake.told if isinstance(each, Configure)]
            await do(link, Configure(model="opus"))
            with pytest.raises(errors.UnableError, match="has no option 'loud' that is on or off"):
                await do(await env.linked(), Configure(switches={"loud": True}))


COMMANDING = """
import asyncio, sys
from pathlib import Path
import msgspec
from kasmon.errors import KasmonError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import ExecuteCommand

async def main(socket, frame):
    link = await HostLink.open(Path(socket))
    try:
        await link.ask(msgspec.json.decode(frame, type=ExecuteCommand))
        print("done")
    except KasmonError as error:
        print(error.message)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("marked", [True, False], ids=["with its variable", "as a child of its host"])
async def test_a_child_process_of_an_agent_may_not_answer(env: Env, fake: FakeAgent, marked: bool) -> None:
    async with env.hosting(fake):
        _, (request,) = await asking(env, fake, asked())
        said = await asyncio.to_thread(_commanded_by_a_child, env, answer(request), marked)

    assert "an agent cannot answer requests." == said
    assert [] == answers(fake)


def _commanded_by_a_child(env: Env, wish: AgentCommand | Allow, marked: bool) -> str:
    """What a process that this one starts is answered to *wish*; *marked*: with the variable of an agent."""
    variables = dict(os.environ) | ({"KASMON_SESSION": "someones"} if marked else {})
    frame = msgspec.json.encode(ExecuteCommand(n=0, session=ME, command=wish)).decode()
    command = [sys.executable, "-P", "-c", COMMANDING, str(env.paths.socket(ME)), frame]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


async def test_allowing_a_request_that_may_be_cut_is_refused_and_a_denial_is_accepted(
    env: Env, fake: FakeAgent
) -> None:
    """Whatever its choices say: the terminal shows what is asked, and consent is given there."""
    opened = asked("rm", choices=(Decision.ALLOW, Decision.ALWAYS, Decision.EDIT, Decision.DENY))
    cut = msgspec.structs.replace(opened, request=msgspec.structs.replace(opened.request, may_be_cut=True))
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, cut)
        for decision in (Decision.ALLOW, Decision.ALWAYS, Decision.EDIT):
            with pytest.raises(errors.UnableError, match="may be truncated") as caught:
                await do(link, answer(request, decision, input={}))
            assert "kasmon attach" in caught.value.hint
        await do(link, answer(request, Decision.DENY))

    assert [Decision.DENY] == [told.decision for told in answers(fake)]


@pytest.mark.parametrize("digest", ["", " ", "0", "0" * 64])
async def test_an_answer_without_the_right_digest_is_refused(env: Env, fake: FakeAgent, digest: str) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        for decision in (Decision.ALLOW, Decision.DENY, Decision.LATER):
            with pytest.raises(errors.StaleRequestError):
                await do(link, msgspec.structs.replace(answer(request, decision), digest=digest))

        assert [request] == list(env.session().requests)
    assert [] == answers(fake)
