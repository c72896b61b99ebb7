"""Peers on different machines: what they know of each other, and what they write to each other; two real kasmons."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.config import Config
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PeerMessageDelivered, decode
from kasmon.model.plan.parser import read
from kasmon.paths import Paths
from kasmon.store.machines import Machine, write_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import start_link
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.peers.context import (
    DistantContext,
    TaskContext,
    TaskContexts,
    WriteContexts,
    store_contexts,
)
from kasmon.supervisor.plans.peers.delivery import deliver, find_senders
from kasmon.supervisor.sessions.create import NewSession, prepare
from kasmon.supervisor.sessions.start import begin
from tests.support.bus.buses import command_of
from tests.support.sample_plans import began, placed
from tests.support.supervisor.env import Env
from tests.support.wait import until

pytestmark = pytest.mark.story

MACHINE = "gpu-1"
TEXT = """
[[task]]
id = "a"
title = "the store"
prompt = "x"
[[task]]
id = "b"
title = "the tokens"
prompt = "x"
machine = "gpu-1"
[[task]]
id = "c"
run = "true"
machine = "gpu-1"
"""


def started(paths: Paths, task: int) -> SessionId:
    new = NewSession(
        name=f"tidy-W1-T{task}", agent="scripted", mode=Mode.SDK, workdir="/", prompt="say hi", plan="tidy", task=task,
        wave=1, peers=3,
    )  # fmt: skip
    launch = prepare(paths, Config(default_agent="scripted"), new, time.time())
    asyncio.run(begin(paths, launch))
    return launch.session


class Peers:
    """Task a here, task b on the machine gpu-1, both of a plan that no runner runs."""

    def __init__(self) -> None:
        self.here, self.there = Env(), Env()
        write_machine(self.here.paths, Machine(name=MACHINE, command=command_of(self.there.paths)))
        start_link(self.here.paths, MACHINE)
        self.a, self.b = started(self.here.paths, 1), started(self.there.paths, 2)
        folder = self.here.folder
        self.plan = read(TEXT, "tidy.toml")
        file = folder / "tidy.toml"
        self.log = start.store_approved_plan(self.here.paths, self.plan, TEXT, file, folder, headless=False)
        for fact in (
            began("a", session=self.a),
            placed("b", machine=MACHINE),
            began("b", session=self.b, name="tidy-W1-T2"),
        ):
            self.log.note(fact)
        until(lambda: len([each for each in self.fleet().sessions if each.state == "idle"]) == 2, 30.0, "both peers")
        self.contexts = TaskContexts(self.here.paths)

    def fleet(self) -> Fleet:
        return read_fleet(self.here.paths)

    def send_contexts(self) -> None:
        """As the plan's runner does."""
        self.contexts.write(self.plan, self.log.run, self.fleet(), {"b": ("token.go",)})
        for machine in self.contexts.unsent():
            self.contexts.send(machine)

    def deliver(self, sender: SessionId, count: int) -> None:
        """Deliver the messages of *sender* once there are so many, as the plan's runner does."""
        until(lambda: self.fleet().require(sender).peer_messages == count, 30.0, "the message")
        [session] = find_senders(self.log.run, self.fleet())
        asyncio.run(deliver(self.here.paths, self.log, session, self.fleet()))
        assert [] == list(find_senders(self.log.run, self.fleet()))

    def run(self, session: SessionId, *words: str) -> Any:
        """What a command of the agent of *session* prints with --json."""
        env = self.here if session == self.a else self.there
        command = [*command_of(env.paths), *words, "--json"]
        done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "KASMON_SESSION": session})
        return json.loads(done.stdout or b"null")

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.close()


def test_each_agent_is_given_the_other_with_its_machine_and_state(peers: Peers) -> None:
    peers.send_contexts()
    assert [] == peers.contexts.unsent()

    [there, command] = peers.run(peers.a, "ctx")["session"]["peer_sessions"]
    [here, _] = peers.run(peers.b, "ctx")["session"]["peer_sessions"]

    assert (peers.b, MACHINE, "idle", ["token.go"]) == tuple(there[key] for key in ("id", "machine", "state", "files"))
    assert (peers.a, None, "idle", "the store") == tuple(here[key] for key in ("id", "machine", "state", "title"))
    assert (None, 3) == (command["id"], command["task"])


def received(paths: Paths, session: SessionId) -> int:
    return sum(receipt.by == "peer" for receipt in read_fleet(paths).require(session).receipts)


def test_a_message_of_one_is_delivered_to_the_other_by_the_runner(peers: Peers) -> None:
    peers.send_contexts()

    [receipt] = peers.run(peers.b, "tell", "1", "say the tokens are done")["receipts"]
    assert (peers.a, "queued", "the plan's runner delivers it") == tuple(
        receipt[key] for key in ("session", "state", "reason")
    )
    peers.deliver(peers.b, 1)
    assert 1 == received(peers.here.paths, peers.a)

    [receipt] = peers.run(peers.a, "tell", "wave", "say thanks")["receipts"]
    assert peers.b == receipt["session"]
    peers.deliver(peers.a, 1)
    until(lambda: received(peers.there.paths, peers.b) == 1, 30.0, "the message there")


def deliver_twice(peers: Peers, sender: SessionId, *words: str) -> None:
    """Have *sender* run these words, and the runner deliver what they wrote, again after it was killed before it
    noted that."""
    peers.send_contexts()
    env = peers.here if sender == peers.a else peers.there
    count = peers.fleet().require(sender).peer_messages + 1
    variables = {**os.environ, "KASMON_SESSION": sender}
    subprocess.run([*command_of(env.paths), *words], env=variables, capture_output=True, check=True)
    events = peers.log.folder / "events.jsonl"
    noted = events.read_bytes()
    peers.deliver(sender, count)
    events.write_bytes(noted)
    peers.log = PlanLog(peers.here.paths, peers.log.plan)
    peers.log.more()
    peers.deliver(sender, count)


def test_a_runner_killed_before_it_logged_a_delivery_delivers_it_once(peers: Peers) -> None:
    before = received(peers.there.paths, peers.b)

    deliver_twice(peers, peers.a, "tell", "wave", "say once")
    deliver_twice(peers, peers.a, "tell", "wave", "say once")
    deliver_twice(peers, peers.b, "tell", "notes", "The store is slow.")

    assert before + 2 == received(peers.there.paths, peers.b)
    assert 1 == peers.log.notes.read_text().count("The store is slow.")


def test_notes_are_written_on_the_runners_machine_and_read_on_both(peers: Peers) -> None:
    peers.send_contexts()
    before = read_fleet(peers.there.paths).require(peers.b).peer_messages

    done = subprocess.run(
        [*command_of(peers.there.paths), "tell", "notes", "the store is slow"],
        env={**os.environ, "KASMON_SESSION": peers.b}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    peers.deliver(peers.b, before + 1)
    peers.send_contexts()

    assert "the store is slow" in peers.log.notes.read_text()
    copy = Path(peers.run(peers.b, "ctx")["session"]["notes"])
    assert (str(copy) in done.stdout, "the store is slow" in copy.read_text()) == (True, True)
    assert copy.is_relative_to(peers.there.folder)


def test_a_message_to_a_task_that_does_not_run_is_not_sent(peers: Peers) -> None:
    before = peers.fleet().require(peers.a).peer_messages
    peers.send_contexts()
    path = peers.here.paths.context(peers.a)
    forged = msgspec.json.decode(path.read_bytes())
    forged["peer_sessions"][0]["id"] = "zzzzzzzz"
    path.write_bytes(msgspec.json.encode(forged))

    peers.run(peers.a, "tell", "zzzzzzzz", "hello")
    peers.deliver(peers.a, before + 1)

    lines = (peers.log.folder / "events.jsonl").read_bytes().splitlines()
    last = [fact for fact in map(decode, lines) if isinstance(fact, PeerMessageDelivered)][-1]
    assert ("", "'zzzzzzzz' is no task of this plan that is at work.") == (last.state, last.why)


def test_a_context_is_stored_for_a_session_of_that_task_only(peers: Peers) -> None:
    told = TaskContext(plan="tidy", name="tidy", task=2, wave=1, peers=3, title="", notes="")
    context = DistantContext(session=peers.b, context=told, notes="")
    wrong = msgspec.structs.replace(context, context=msgspec.structs.replace(context.context, task=9))
    other = msgspec.structs.replace(context, session=SessionId("zzzzzzzz"))

    assert (peers.b,) == store_contexts(peers.there.paths, WriteContexts(contexts=(wrong, other, context)))
