"""Who did something: the agent's session, as processes show it. Real agents in terminals, real hosts."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kasmon import system
from kasmon.errors import RefusedError
from kasmon.host.rpc.actor import declared, find_actor, require_actor
from kasmon.model.commands import ActingAgent
from kasmon.model.events import LogOpened
from kasmon.model.permission import SessionId
from kasmon.paths import write_private
from tests.support.agents.leading_agent import FRAME, LeadingAgent, start_lead
from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.cli.fork_server import KASMON
from tests.support.supervisor.env import NOW, Env, launch, started
from tests.support.wait import until


@pytest.fixture
def state() -> Iterator[Env]:
    """The files of a kasmon whose sessions no process runs."""
    env = Env()
    yield env
    env.close()


def test_a_session_and_a_prompt_name_the_agent_that_made_them_and_its_depth(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    child = lead.json("new", "child", "--agent", "scripted", "--mode", "sdk")["session"]
    lead.json("send", "child", "say hello", "--wait", "idle")
    kasmon.json("send", "child", "say again", "--wait", "idle")
    by_agent, by_person = kasmon.json("show", "child")["session"]["receipts"]

    assert (lead.session, {"session": lead.session, "depth": 0, "machine": ""}) == (child["parent"], child["actor"])
    assert ({"session": lead.session, "depth": 0, "machine": ""}, None) == (by_agent["actor"], by_person["actor"])
    assert kasmon.json("show", "lead")["session"]["actor"] is None


def acts(kasmon: Cli, session: str) -> list[tuple[str, dict[str, Any], str]]:
    events = kasmon.json("show", session)["session"]["events"]
    return [(each["command"], each["actor"], each["name"]) for each in events if each["kind"] == "agent.commanded"]


def test_a_stop_and_an_interrupt_name_the_agent_that_sent_them(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    lead.json("new", "child", "--agent", "scripted", "--mode", "sdk", "--prompt", "ask ls")
    kasmon.request()
    lead.kasmon("interrupt", "child")
    lead.kasmon("stop", "child")

    actor = {"session": lead.session, "depth": 0, "machine": ""}
    assert [("interrupt", actor, "lead"), ("stop", actor, "lead")] == acts(kasmon, "child")
    transcript = kasmon("read", "child").out
    assert "the agent of lead interrupted the turn" in transcript
    assert "the agent of lead stopped this session" in transcript
    explained = kasmon("explain", "child").out.splitlines()
    assert ["idle,", "ended,"] == [line.split()[2] for line in explained if line.endswith(", by the agent of lead")]


PROPOSAL = "ProposeFinish(n=0, session=session.id, text='done')"
FORGED = PROPOSAL.replace("'done'", "'done', actor=ActingAgent(session='abcdefgh', machine='far')")
MESSAGE = (
    "RecordPeerMessage(n=0, session=session.id, event=PeerMessageWritten(at=0, to='bcdefghi', name='x', text='x'))"
)
CANNOT = "this agent cannot propose to finish session"
STRUCTURED, TERMINAL = ("--agent", "scripted", "--mode", "sdk"), ("--agent", "lead")


@pytest.mark.parametrize("kind", [STRUCTURED, TERMINAL], ids=["structured", "terminal"])
def test_a_host_logs_a_proposal_only_of_an_agent_with_the_tools_for_a_session_below_it(
    kasmon: Cli, kind: tuple[str, ...]
) -> None:
    kasmon("config", "fleet.depth", "2")
    lead, plain = start_lead(kasmon, "lead", "--tools", "fleet"), start_lead(kasmon, "plain")
    middle = lead.json("new", "middle", *TERMINAL)["session"]["id"]
    low = LeadingAgent(kasmon, middle).json("new", "low", *kind)["session"]["id"]
    child = plain.json("new", "child", *kind)["session"]["id"]
    other = json.loads(kasmon("new", "other", *kind, "--json").out)["session"]["id"]

    for frame in (PROPOSAL, FORGED):
        for session in (lead.session, child, other):
            assert f"{CANNOT} {session!r}" in lead.ask_host(session, frame)
        assert f"{CANNOT} {child!r}" in plain.ask_host(child, frame), "it started it, and has no tools"
        assert f"{CANNOT} {middle!r}" in LeadingAgent(kasmon, middle).ask_host(middle, frame)
    assert not any(kasmon.json("show", each)["session"]["finish_proposed"] for each in ("child", "other", "lead"))
    assert ["it was logged"] * 2 == [lead.ask_host(each, PROPOSAL).strip() for each in (middle, low)]
    kasmon("stop", "middle")
    kasmon("rm", "middle", "--yes")
    assert "it was logged" == lead.ask_host(low, PROPOSAL).strip(), "one between them is gone"


@pytest.mark.parametrize("kind", [STRUCTURED, TERMINAL], ids=["structured", "terminal"])
def test_an_agent_of_another_machine_proposes_nothing_for_a_session_that_none_started(
    kasmon: Cli, kind: tuple[str, ...]
) -> None:
    start_lead(kasmon)
    other = json.loads(kasmon("new", "other", *kind, "--json").out)["session"]["id"]
    argv = [sys.executable, "-P", "-c", FRAME.format(session=other, frame=FORGED)]
    done = subprocess.run(argv, env=kasmon.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    assert f"no agent of another machine started session {other!r}." == done.stdout.strip(), done.stderr
    assert not kasmon.json("show", "other")["session"]["finish_proposed"]


@pytest.mark.parametrize("kind", [STRUCTURED, TERMINAL], ids=["structured", "terminal"])
def test_an_agent_messages_machines_only_in_the_log_of_its_own_session(kasmon: Cli, kind: tuple[str, ...]) -> None:
    lead = start_lead(kasmon)
    child = lead.json("new", "child", *kind)["session"]["id"]

    assert "an agent cannot write messages of another agent." == lead.ask_host(child, MESSAGE).strip()
    assert "it was logged" == lead.ask_host(lead.session, MESSAGE).strip()
    assert [] == [each for each in kasmon.json("show", child)["session"]["events"] if each["kind"] == "peer.wrote"]


@pytest.mark.parametrize("kind", [STRUCTURED, TERMINAL], ids=["structured", "terminal"])
def test_an_agents_process_that_lost_its_parents_messages_only_for_the_session_in_its_environment(
    kasmon: Cli, kind: tuple[str, ...]
) -> None:
    lead, out = start_lead(kasmon), kasmon.home / "out"
    other = json.loads(kasmon("new", "other", *kind, "--json").out)["session"]["id"]
    answers = []
    for session in (other, lead.session):
        line = shlex.join([sys.executable, "-P", "-c", FRAME.format(session=session, frame=MESSAGE)])
        lead.run("setsid", "-f", "sh", "-c", f"setsid -f sh -c {shlex.quote(f'{line} >{out}.new; mv {out}.new {out}')}")
        until(out.exists, LIMIT_S)
        answers.append(out.read_text().strip())
        out.unlink()

    assert ["an agent cannot write messages of another agent.", "it was logged"] == answers
    assert [] == [each for each in kasmon.json("show", other)["session"]["events"] if each["kind"] == "peer.wrote"]


def test_a_stop_of_an_agent_in_a_terminal_names_the_agent_that_sent_it_too(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    lead.kasmon("new", "second", "--agent", "lead")
    lead.kasmon("stop", "second")

    assert [("stop", {"session": lead.session, "depth": 0, "machine": ""}, "lead")] == acts(kasmon, "second")


def test_a_stop_and_an_interrupt_by_a_user_name_no_agent(kasmon: Cli) -> None:
    kasmon.new("child", "ask ls")
    kasmon.request()
    assert (0, 0) == (kasmon("interrupt", "child").code, kasmon("stop", "child").code)

    assert [] == acts(kasmon, "child")
    assert "by the agent of" not in kasmon("explain", "child").out


def test_an_agent_below_another_is_deeper(kasmon: Cli) -> None:
    kasmon("config", "fleet.depth", "2")
    lead = start_lead(kasmon)
    lead.kasmon("new", "second", "--agent", "lead")
    second = LeadingAgent(kasmon, kasmon.json("show", "second")["session"]["id"])
    third = second.json("new", "third", "--agent", "scripted", "--mode", "sdk")["session"]

    assert ("second", 1) == (kasmon.json("show", third["parent"])["session"]["name"], third["actor"]["depth"])


@pytest.mark.parametrize("way", ["", "env -i", "setsid", "env -u KASMON_SESSION -u KASMON_RUN KASMON_HOST=1"])
def test_an_agent_cannot_name_another_session_as_its_own(kasmon: Cli, way: str) -> None:
    lead, other = start_lead(kasmon), start_lead(kasmon, "other")
    kept = [f"{name}={value}" for name, value in kasmon.environment.items()] if way == "env -i" else []
    claim = ["env", f"KASMON_SESSION={other.session}"] if not way.endswith("=1") else []
    out = lead.run(*way.split(), *kept, *claim, *KASMON, "new", "child", "--agent", "scripted", "--mode", "sdk")

    assert lead.session == kasmon.json("show", "child")["session"]["parent"], out


def test_an_agents_process_in_the_background_of_the_system_has_no_certain_session(kasmon: Cli) -> None:
    lead, out = start_lead(kasmon), kasmon.home / "out"
    line = shlex.join([*KASMON, "new", "child", "--agent", "scripted", "--mode", "sdk"])
    lead.run("setsid", "-f", "sh", "-c", f"{line} >{out}.new 2>&1; mv {out}.new {out}")

    until(out.exists, LIMIT_S)
    assert "this process belongs to an agent, and it is not certain to which" in out.read_text()
    assert ["lead"] == [each["name"] for each in kasmon.json("ls")["sessions"]]


def test_a_process_with_the_number_of_an_agent_that_ended_is_not_that_agent(state: Env) -> None:
    session = state.has("abcdefgh")
    variables = {**os.environ, "KASMON_SESSION": session}
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=variables)
    try:
        until(lambda: system.HERE.read_variables(sleeper.pid).get("KASMON_SESSION"))
        write_private(state.paths.launch(session), msgspec.json.encode(launch(session)))
        now = started(pid=sleeper.pid)
        assert now.pid_started is not None
        state.tells(session, LogOpened(at=NOW, session=session), msgspec.structs.replace(now, pid_started=NOW))
        assert ActingAgent(session=SessionId("")) == find_actor(state.paths, sleeper.pid)

        state.tells(session, now)
        assert ActingAgent(session=session) == find_actor(state.paths, sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.communicate()


@pytest.mark.parametrize(
    ("actor", "is_kept"),
    [
        (ActingAgent(session=SessionId("abcdefgh"), machine="gpu-1"), True),
        (ActingAgent(session=SessionId("abcdefgh")), False),
        (ActingAgent(session=SessionId("[b]x"), machine="gpu-1"), False),
        (ActingAgent(session=SessionId("abcdefgh"), machine="x" * 300), False),
        (None, False),
    ],
)
def test_a_client_can_only_name_an_agent_of_another_machine(actor: ActingAgent | None, is_kept: bool) -> None:
    assert (actor if is_kept else None) == declared(actor)


def test_a_user_is_no_agent(kasmon: Cli) -> None:
    start_lead(kasmon)

    assert find_actor(kasmon.paths, os.getpid()) is None
    with pytest.raises(RefusedError, match="cannot list sessions: this process belongs to no session's agent"):
        require_actor(kasmon.paths, os.getpid(), "list sessions")
