"""What an agent has done on a registered machine: what the person allowed here and its owner there, and no more."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.host.session.peer_limits import MOST
from kasmon.model.permission import SessionId
from kasmon.store.machines import ChildRegister
from kasmon.supervisor.machines import link_client
from kasmon.supervisor.machines.agent_requests import parse_actor
from kasmon.supervisor.machines.link_client import AgentRequest
from tests.support.agents.fleet_client import ToolClient, lead_of
from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.bus.two_command_lines import MACHINE, TwoCommandLines
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.wait import until

pytestmark = pytest.mark.story

SCRIPTED = {"agent": "scripted", "machine": MACHINE}


@pytest.fixture(params=["stream", "ssh", "nats"])
def far(request: pytest.FixtureRequest, fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    """Two kasmons, joined in each way that there is."""
    joined = TwoCommandLines(fork_server, request.param)
    give_scripted(joined)
    yield joined
    joined.close()


@pytest.fixture
def joined(fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    joined = TwoCommandLines(fork_server)
    give_scripted(joined)
    yield joined
    joined.close()


def give_scripted(joined: TwoCommandLines) -> None:
    write_profile(joined.there, 'tools = ["fleet"]')
    with joined.there.paths.config_file.open("a") as config:
        config.write('\n[agents.scripted]\nexecution_mode = "sdk"\n')


def allowed(joined: TwoCommandLines, **settings: str) -> LeadingAgent:
    """An agent that may start sessions there, within *settings* of the table [fleet] here."""
    return lead_of(joined.here, **({"machines": MACHINE} | settings))


def there(joined: TwoCommandLines) -> list[str]:
    return [each["name"] for each in joined.there.json("ls")["sessions"]]


async def test_a_child_on_another_machine_is_started_prompted_read_messaged_and_proposed_to_finish(
    far: TwoCommandLines,
) -> None:
    async with ToolClient(lead := allowed(far)) as fleet:
        child = (await fleet.ok("start", name="child", prompt="say hello", **SCRIPTED))["session"]
        await fleet.ok("wait", session=child, states="idle")
        receipt = (await fleet.ok("prompt", session=child, text="say again"))["receipt"]
        await fleet.ok("wait", session=child, states="idle")
        until(lambda: far.session(child)["last_line"] == "again")
        read = await fleet.ok("read", session=child, lines="50")
        listed = (await fleet.ok("list"))["sessions"]
        shown = far.there.json("show", child)["session"]
        sent = (await fleet.ok("message", session="child", text="say more"))["receipt"]
        until(lambda: far.session(child)["last_line"] == "more")
        await fleet.ok("wait", session=child, states="idle")
        proposed = await fleet.ok("finish", session=child, summary="the parser is done")

    actor = {"session": lead.session, "depth": 0, "machine": socket.gethostname()}
    assert (actor, None) == (shown["actor"], shown["parent"])
    assert [actor, actor] == [each["actor"] for each in shown["receipts"]]
    assert [("peer", actor)] * 2 == [(each["by"], each["actor"]) for each in (receipt, sent)]
    assert "[From lead, the agent that started you, not from the person you work for]" in read["text"]
    assert [("lead", None, 0, None), ("child", MACHINE, 1, lead.session)] == [
        (each["name"], each["machine"], each["depth"], each["parent"]) for each in listed
    ]
    here, there = (side.json("show", child)["session"] for side in (far.here, far.there))
    transcript = far.there("read", child).out
    assert "[Message from your peer lead, another agent" in transcript
    assert ({"session": child, "proposed": True}, lead.session) == (
        {name: proposed[name] for name in ("session", "proposed")},
        proposed["by"]["session"],
    )
    assert ["the parser is done"] * 2 == [each["finish_proposed"] for each in (here, there)]
    assert "the agent of lead proposes to finish this session: the parser is done" in transcript


def sent_to(side: Cli, session: str) -> list[Any]:
    """The receipts of the messages of other agents that a session got."""
    return [each for each in side.json("show", session)["session"]["receipts"] if each["by"] == "peer"]


def texts_of(side: Cli, session: str) -> list[str]:
    """The prompts that a session got, in one line each."""
    events = side.json("show", session)["session"]["events"]
    return [" ".join(each["prompt"].split()) for each in events if each["kind"] == "receipt.moved" and each["prompt"]]


async def start_child(joined: TwoCommandLines, lead: LeadingAgent, name: str = "child") -> LeadingAgent:
    """An agent there that *lead* started, which has the tools too."""
    async with ToolClient(lead) as fleet:
        child = await fleet.ok("start", name=name, prompt="x", agent="lead", machine=MACHINE)
    return LeadingAgent(joined.there, child["session"])


async def test_a_child_on_another_machine_messages_the_agent_that_started_it(far: TwoCommandLines) -> None:
    lead = allowed(far)
    async with ToolClient(child := await start_child(far, lead)) as fleet:
        receipt = (await fleet.ok("message", session="lead", text="half of it is done"))["receipt"]
        until(lambda: len(sent_to(far.here, "lead")) == 1)
        await asyncio.to_thread(far.cut)
        await fleet.ok("message", session=lead.session, text="the rest, too")
        await asyncio.to_thread(far.connect)
        until(lambda: len(sent_to(far.here, "lead")) == 2)

    actor = {"session": child.session, "depth": 1, "machine": MACHINE}
    assert (lead.session, "queued", f"{socket.gethostname()} delivers it") == (
        receipt["session"],
        receipt["state"],
        receipt["reason"],
    )
    assert [actor, actor] == [each["actor"] for each in sent_to(far.here, "lead")]
    head = "[Message from your peer gpu-1:child, another agent, not from the person you work for]"
    assert [f"{head} half of it is done", f"{head} the rest, too"] == texts_of(far.here, "lead")
    assert [] == refusals(far, child)


def message(to: str, text: str = "x") -> str:
    event = f"PeerMessageWritten(at=0, to='{to}', name='lead', text='{text}')"
    return f"RecordPeerMessage(n=0, session=session.id, event={event})"


def refusals(joined: TwoCommandLines, child: LeadingAgent) -> list[str]:
    """Why messages of *child* were not delivered, as its agent reads it."""
    parts = [each.partition("was not delivered: ") for each in texts_of(joined.there, child.session)]
    return [reason for _, found, reason in parts if found]


async def test_a_child_there_cannot_reach_other_sessions_here(joined: TwoCommandLines) -> None:
    lead, other = allowed(joined), start_lead(joined.here, "other", "--tools", "fleet")
    async with ToolClient(child := await start_child(joined, lead)) as fleet:
        for name in ("other", other.session):
            assert "no running peer" in await fleet.refused("message", session=name, text="x")
    assert "it was logged" in child.ask_host(child.session, message(other.session))

    until(lambda: refusals(joined, child))
    assert [f"no agent of session {other.session!r} started yours."] == refusals(joined, child)
    assert [] == sent_to(joined.here, "other") == sent_to(joined.here, "lead")


def register(joined: TwoCommandLines, session: str, lead: LeadingAgent) -> None:
    """Record that *lead* had the session there started, as the link does."""
    ChildRegister(joined.here.paths, MACHINE).add(SessionId(session), SessionId(lead.session))


def until_copied(joined: TwoCommandLines, session: str) -> None:
    """Wait until a message of the session there is in the copy of its log here."""
    copy = joined.here.paths.log(SessionId(session))
    until(lambda: b'"peer.wrote"' in copy.read_bytes(), what="the message in the copy")


async def test_the_machines_claim_of_who_started_a_session_there_is_not_accepted(joined: TwoCommandLines) -> None:
    joined.there("config", "fleet.depth", "8")
    lead = allowed(joined)
    child = await start_child(joined, lead)
    claimed = declared(session=lead.session, depth=5, machine=socket.gethostname())
    claimed = claimed.replace('"limits": {"depth": 1', '"limits": {"depth": 8')
    stranger = joined.there("new", "stranger", "--agent", "lead", "--actor", claimed).out.strip()
    assert stranger
    plain = start_lead(joined.there, "plain")
    joined.until(stranger, lambda known: known and known["parent"] == lead.session)
    for each in (LeadingAgent(joined.there, stranger), plain, child):
        assert "it was logged" in each.ask_host(each.session, message(lead.session))
        until_copied(joined, each.session)

    until(lambda: sent_to(joined.here, "lead"))
    assert [child.session] == [each["actor"]["session"] for each in sent_to(joined.here, "lead")]

    await asyncio.to_thread(joined.cut)
    await asyncio.to_thread(register, joined, stranger, lead)
    await asyncio.to_thread(joined.connect)
    until(lambda: len(sent_to(joined.here, "lead")) == 2)
    actor = {"session": stranger, "depth": 1, "machine": MACHINE}
    assert actor == sent_to(joined.here, "lead")[1]["actor"], "the depth is counted here"


async def test_a_grandchild_there_has_one_more_agent_above_it(joined: TwoCommandLines) -> None:
    joined.there("config", "fleet.depth", "2")
    lead = allowed(joined, depth="2")
    child = await start_child(joined, lead)
    low = LeadingAgent(joined.there, child.json("new", "low", "--agent", "lead")["session"]["id"])
    async with ToolClient(low) as fleet:
        await fleet.ok("message", session="lead", text="x")

    until(lambda: sent_to(joined.here, "lead"))
    assert {"session": low.session, "depth": 2, "machine": MACHINE} == sent_to(joined.here, "lead")[0]["actor"]


async def test_a_machine_that_the_user_no_longer_allows_delivers_nothing_here(joined: TwoCommandLines) -> None:
    lead = allowed(joined)
    child = await start_child(joined, lead)
    joined.here("config", "fleet.machines", "other")
    async with ToolClient(child) as fleet:
        await fleet.ok("message", session="lead", text="x")

    until(lambda: refusals(joined, child))
    assert "the machines that the person allows are 'other'" in refusals(joined, child)[0]
    assert [] == sent_to(joined.here, "lead")


async def test_a_message_to_an_agent_that_ended_is_refused_and_starts_none(joined: TwoCommandLines) -> None:
    lead = allowed(joined)
    child = await start_child(joined, lead)
    joined.here.json("stop", "lead", "--children", "keep")
    async with ToolClient(child) as fleet:
        await fleet.ok("message", session="lead", text="x")

    until(lambda: refusals(joined, child))
    assert "has ended" in refusals(joined, child)[0]
    assert "ended" == joined.here.json("show", "lead")["session"]["state"]


async def test_messages_from_the_machine_have_the_limits_of_local_ones(joined: TwoCommandLines) -> None:
    lead = allowed(joined)
    child = await start_child(joined, lead)
    for number in range(MOST + 1):
        assert "it was logged" in child.ask_host(child.session, message(lead.session, str(number)))

    until(lambda: refusals(joined, child))
    assert [f"'lead' received {MOST} peer messages within 60 s."] == refusals(joined, child)
    assert MOST == len(sent_to(joined.here, "lead"))


async def test_an_older_kasmon_receives_no_messages_and_the_tool_reports_it(joined: TwoCommandLines) -> None:
    options = ("--agent", "lead", "--actor", declared())
    async with ToolClient(LeadingAgent(joined.there, joined.there("new", "child", *options).out.strip())) as fleet:
        why = await fleet.refused("message", session="abcdefgh", text="x")

    assert "kasmon on 'laptop' delivers no messages to the agent that started yours." == why


async def test_a_sibling_on_another_machine_gets_messages_and_nothing_else(joined: TwoCommandLines) -> None:
    write_profile(joined.here, 'tools = ["fleet"]')
    async with ToolClient(allowed(joined)) as fleet:
        near = (await fleet.ok("start", name="near", prompt="x", agent="lead"))["session"]
        distant = (await fleet.ok("start", name="distant", prompt="say x", **SCRIPTED))["session"]
    async with ToolClient(LeadingAgent(joined.here, near)) as fleet:
        receipt = (await fleet.ok("message", session="distant", text="say hello"))["receipt"]
        assert "you did not start it" in await fleet.refused("prompt", session=distant, text="x")
        assert "you did not start it" in await fleet.refused("finish", session=distant, summary="x")

    assert {"session": near, "depth": 1, "machine": socket.gethostname()} == receipt["actor"]
    assert not joined.there.json("show", distant)["session"]["finish_proposed"]


async def test_a_machine_that_lets_others_only_start_accepts_no_message_and_no_proposal(
    joined: TwoCommandLines,
) -> None:
    async with ToolClient(allowed(joined)) as fleet:
        child = (await fleet.ok("start", name="child", prompt="say x", **SCRIPTED))["session"]
        await fleet.ok("wait", session=child, states="idle")
        with joined.there.paths.config_file.open("a") as config:
            config.write('\n[machine]\nallow = ["see", "start"]\n')
        await asyncio.to_thread(joined.cut)
        await asyncio.to_thread(joined.connect)
        for tool, more in {"message": {"text": "x"}, "finish": {"summary": "x"}}.items():
            why = await fleet.refused(tool, session=child, **more)
            assert "the owner of that machine does not let you send prompts to its agents" in why


async def test_a_terminal_there_is_read_from_its_machine(joined: TwoCommandLines) -> None:
    async with ToolClient(allowed(joined)) as fleet:
        child = (await fleet.ok("start", name="child", prompt="x", agent="lead", machine=MACHINE))["session"]
        read = await fleet.ok("read", session=child)

    assert (MACHINE, child) == (read["machine"], read["session"])


def ask(lead: LeadingAgent, request: str) -> str:
    """What the link answers to *request* of the agent's own program, without any tool."""
    program = (
        "from kasmon.errors import KasmonError\n"
        "from kasmon.paths import user_paths\n"
        "from kasmon.supervisor.machines.link_client import AgentRequest, RunCommand, ask_for_agent, run\n"
        f"try:\n    print({request})\nexcept KasmonError as error:\n    print(error.message)\n"
    )
    return lead.run(sys.executable, "-P", "-c", program)


START = (
    f"ask_for_agent(user_paths(), '{MACHINE}', "
    "AgentRequest(n=1, act='start', name='child', text='x', agent='scripted'))"
)


LIMITS = (
    ("machines", "other", "the machines that the person allows are 'other'"),
    ("agents", "", "cannot start 'scripted': the person allows 'lead'"),
    ("depth", "0", "fleet.depth = 0"),
    ("sessions", "0", "fleet.sessions = 0"),
    ("starts", "0", "fleet.starts = 0"),
    ("money", "$0", "fleet.money = '$0'"),
)
"""A setting, its value, and why nothing is started."""


async def test_a_limit_here_applies_to_the_tool_and_to_a_request_past_it(joined: TwoCommandLines) -> None:
    lead, config = allowed(joined), joined.here.paths.config_file
    usual = config.read_text()
    async with ToolClient(lead) as fleet:
        for setting, value, why in LIMITS:
            config.write_text(usual)
            assert 0 == joined.here("config", f"fleet.{setting}", value).code
            assert why in await fleet.refused("start", name="child", prompt="x", **SCRIPTED)
            assert why in ask(lead, START)
    assert [] == there(joined)


async def test_the_limits_there_apply_too(joined: TwoCommandLines) -> None:
    joined.there("config", "fleet.sessions", "0")
    async with ToolClient(allowed(joined)) as fleet:
        assert "fleet.sessions = 0" in await fleet.refused("start", name="child", prompt="x", **SCRIPTED)


async def test_children_on_the_machine_count_here(joined: TwoCommandLines) -> None:
    async with ToolClient(allowed(joined, sessions="1")) as fleet:
        child = (await fleet.ok("start", name="child", prompt="say x", **SCRIPTED))["session"]
        assert "1 children of 'lead' exist" in await fleet.refused("start", name="second", prompt="x", **SCRIPTED)
        assert "1 children of 'lead' exist" in await fleet.refused("start", name="near", prompt="x", agent="scripted")
        joined.here.json("stop", child)
        await fleet.ok("start", name="second", prompt="say x", **SCRIPTED)


async def test_the_depth_here_applies_to_children_of_a_child_there(joined: TwoCommandLines) -> None:
    joined.there("config", "fleet.depth", "8")
    async with ToolClient(allowed(joined)) as fleet:
        child = (await fleet.ok("start", name="child", prompt="x", agent="lead", machine=MACHINE))["session"]
    below = LeadingAgent(joined.there, child).kasmon("new", "below", "--agent", "scripted", "--mode", "sdk")

    assert "its children would be deeper than the limit, fleet.depth = 1" in below
    assert ["child"] == there(joined)


async def test_the_time_here_applies_to_a_child_there(joined: TwoCommandLines) -> None:
    async with ToolClient(allowed(joined, minutes="0.1")) as fleet:
        child = (await fleet.ok("start", name="child", prompt="say x", **SCRIPTED))["session"]
        until(lambda: joined.there.json("show", child)["session"]["state"] == "ended")
        joined.until(child, lambda known: known["state"] == "ended")
        assert "fleet.minutes = 0.1" in await fleet.refused("prompt", session=child, text="say x")

    assert "fleet.minutes = 0.1" in joined.there.json("show", child)["session"]["end_why"]


async def test_only_its_own_children_there_are_prompted_and_shown(joined: TwoCommandLines) -> None:
    other = joined.new("other", "say secret")
    async with ToolClient(lead := allowed(joined, sees="all")) as fleet:
        assert "you did not start it" in await fleet.refused("prompt", session=other, text="x")
        assert "no running peer" in await fleet.refused("message", session=other, text="x")
        assert "you do not see" in await fleet.refused("read", session=other)
        assert ["lead"] == [each["name"] for each in (await fleet.ok("list"))["sessions"]]
    for act in ("prompt", "message", "read", "diff", "finish"):
        request = f"AgentRequest(n=1, act='{act}', session='{other}', text='x', lines=5)"
        assert "you did not start it" in ask(lead, f"ask_for_agent(user_paths(), '{MACHINE}', {request})")
    assert ["say secret"] == [each["text"] for each in joined.there.json("show", other)["session"]["receipts"]]


def test_a_sandbox_a_drained_machine_and_every_other_request_of_an_agent_are_refused(joined: TwoCommandLines) -> None:
    lead = allowed(joined)

    assert "cannot choose the sandbox ''" in ask(lead, START.replace("agent=", "sandbox='', agent="))
    assert "an agent cannot reach sessions of other machines" in ask(lead, f"run(user_paths(), '{MACHINE}', ['ls'])")
    for words in (("new", "x", "--on", MACHINE), ("machines", "run", MACHINE, "--", "ls")):
        assert "an agent cannot reach sessions of other machines" in lead.kasmon(*words)
    joined.here("machines", "drain", MACHINE)
    assert "is drained: no more sessions start there" in ask(lead, START)
    assert [] == there(joined)


def test_an_agent_without_the_tools_starts_nothing_there(joined: TwoCommandLines) -> None:
    joined.here("config", "fleet.machines", MACHINE)

    assert "session 'lead' may not use the fleet tools: they are off" in ask(start_lead(joined.here), START)
    assert [] == there(joined)


def test_a_command_reserved_for_agents_is_refused_to_the_user(joined: TwoCommandLines) -> None:
    allowed(joined)
    request = AgentRequest(n=1, act="start", name="child", text="x", agent="scripted")

    with pytest.raises(RefusedError, match="this process belongs to no session's agent"):
        link_client.ask_for_agent(joined.here.paths, MACHINE, request)
    assert [] == there(joined)


def declared(**changes: Any) -> str:
    actor = {"session": "abcdefgh", "depth": 0, "machine": "laptop"} | changes
    return json.dumps({"actor": actor, "limits": {"depth": 1, "minutes": 5}})


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", declared(machine=""), declared(session=""), declared(session="../x"), declared(depth=-1)],
)
def test_a_client_that_names_no_agent_of_another_machine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no agent of another machine"):
        parse_actor(text)


def test_an_agent_that_claims_to_be_another_is_still_itself(joined: TwoCommandLines) -> None:
    lead = start_lead(joined.here)
    actor = declared(session="bcdefghi")
    lead.json("new", "child", "--agent", "scripted", "--mode", "sdk", "--actor", actor)
    lead.kasmon("send", "child", "say x", "--actor", actor)
    shown = joined.here.json("show", "child")["session"]

    assert (lead.session, lead.session) == (shown["parent"], shown["actor"]["session"])
    assert {lead.session} == {each["actor"]["session"] for each in shown["receipts"]}


def test_an_agent_of_another_machine_is_no_shell_of_this_one(joined: TwoCommandLines) -> None:
    shell = joined.there("new", "shell", "--", "cat").out.strip()
    joined.there("config", "fleet.starts", "0")
    options = ("--agent", "scripted", "--mode", "sdk", "--actor", declared(session=shell))

    assert "fleet.starts = 0" in joined.there("new", "child", *options).err
    assert ["shell"] == there(joined)
