"""An answer and a plan decision are on disk before anybody is told that they count: seen at the file layer itself.

Our code runs as it is. What it asks of the system (`os.write`, `os.fsync`, `os.replace`, `socket.send`) is recorded in
order, or stopped in the middle as a power cut does.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from os import readlink
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.tmux.input import answer_delivery
from kasmon.config.edit import put
from kasmon.errors import RequestClosedError
from kasmon.host.journal import async_writer
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.host.sandboxed.transitions import SandboxTransitions
from kasmon.host.structured import host
from kasmon.host.terminal import agent_runner
from kasmon.model.commands import AgentCommand, Answer
from kasmon.model.events import RequestAnswered, SandboxPhaseChanged
from kasmon.model.permission import Decision
from kasmon.model.sandbox.policy import SandboxPhase, SandboxRuntime
from kasmon.store.rules import RuleBook
from kasmon.supervisor.plans.start import apply_edit
from tests.host.session.test_request_registry import answer, asking
from tests.host.session.test_rules import keep
from tests.host.terminal.test_screen_answers import asked as asked_on_screen
from tests.host.terminal.test_screen_answers import asking as asking_on_screen
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.agents.menu_agent import dialog
from tests.support.cli.plan_cli import PLAN, PlanCli
from tests.support.host.env import Env, do
from tests.support.wait import auntil

LOG = "events.jsonl"
WAKES = b"\0"
"""What a loop sends itself."""
CUT = """
import os, signal, sys

fsync = os.fsync

def cut(handle):
    if os.readlink(f"/proc/self/fd/{handle}").endswith(ending):
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(handle)

ending, os.fsync = sys.argv.pop(1), cut
from kasmon.__main__ import main
sys.exit(main())
"""
"""kasmon, whose power is cut at the moment when a file whose path ends with the first argument should be on disk."""


class FileLayer:
    """What the system was asked to do, in order: each step's name, and the end of the path or the bytes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, str, bytes]] = []
        self.is_going = threading.Event()
        """Unset, every fsync waits."""
        self.is_going.set()
        self._lock = threading.Lock()
        write, fsync, replace, send = os.write, os.fsync, os.replace, socket.socket.send

        def recorded_write(handle: int, data: Any) -> int:
            self.note("write", _path(handle), bytes(data))
            return write(handle, data)

        def recorded_fsync(handle: int) -> None:
            self.note("fsync asked", _path(handle))
            assert self.is_going.wait(30)
            fsync(handle)
            self.note("fsync", _path(handle))

        def recorded_replace(source: Any, target: Any, **more: Any) -> None:
            replace(source, target, **more)
            self.note("replace", os.fspath(target))

        def recorded_send(line: socket.socket, data: Any, *more: Any) -> int:
            if bytes(data) != WAKES:
                self.note("send", "", bytes(data))
            return send(line, data, *more)

        patch.setattr(os, "write", recorded_write)
        patch.setattr(os, "fsync", recorded_fsync)
        patch.setattr(os, "replace", recorded_replace)
        patch.setattr(socket.socket, "send", recorded_send)

    def note(self, step: str, path: str = "", data: bytes = b"") -> None:
        with self._lock:
            self.steps.append((step, path, data))

    def first(self, step: str, path: str = "", data: bytes = b"", since: int = 0) -> int:
        """Where the first *step* stands, at *since* or later, on a path that ends so and with *data* in it.

        Raises:
            AssertionError: if there is none.
        """
        with self._lock:
            steps = list(self.steps)
        for at, (name, of, held) in enumerate(steps[since:], since):
            if name == step and of.endswith(path) and data in held:
                return at
        raise AssertionError(f"no {step} of {path or data!r} after {since} in {[each[:2] for each in steps]}")

    def has(self, step: str, path: str = "", data: bytes = b"", since: int = 0) -> bool:
        try:
            self.first(step, path, data, since)
        except AssertionError:
            return False
        return True


def _path(handle: int) -> str:
    try:
        return readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - kept from before anything was patched
    except OSError:
        return ""


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> FileLayer:
    return FileLayer(monkeypatch)


def heard_by(layer: FileLayer, fake: FakeAgent) -> None:
    """Have *layer* note when *fake* gets an answer."""

    async def hear(wish: AgentCommand) -> None:
        if isinstance(wish, Answer):
            layer.note("agent told")
        fake.obey(wish)

    fake.on_wish = hear


async def test_an_answer_is_written_synced_sent_and_only_then_confirmed(
    env: Env, fake: FakeAgent, layer: FileLayer
) -> None:
    heard_by(layer, fake)
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        await do(link, answer(request))
        await link.aclose()

    written = layer.first("write", LOG, b"request.answered")
    synced = layer.first("fsync", LOG, since=written)
    told = layer.first("agent told")
    asked_for_it = layer.first("send", data=request.digest.encode())
    confirmed = layer.first("send", since=asked_for_it + 1)
    assert written < synced < told < confirmed


@pytest.mark.parametrize("decision", [Decision.ALWAYS, Decision.NEVER])
async def test_a_rule_of_an_answer_is_on_disk_before_the_answer_is(
    env: Env, fake: FakeAgent, layer: FileLayer, decision: Decision
) -> None:
    """Its content before its name, its name before the answer: otherwise a power cut leaves an empty file of rules."""
    heard_by(layer, fake)
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked("git push"))
        await do(link, answer(request, decision))
        await link.aclose()

    named = layer.first("replace", env.paths.rules.name)
    synced = layer.first("fsync")
    assert f".{env.paths.rules.name}." in layer.steps[synced][1]
    assert synced < named < layer.first("fsync", str(env.paths.rules.parent), since=named)
    assert layer.first("fsync", str(env.paths.rules.parent)) < layer.first("write", LOG, b"request.answered")


async def test_a_revoked_rule_does_not_return_after_a_power_loss(env: Env, layer: FileLayer) -> None:
    book = RuleBook(env.paths.rules)
    rule = keep(env, "git push")
    before = len(layer.steps)
    book.remove(rule.id)

    named = layer.first("replace", env.paths.rules.name, since=before)
    assert layer.first("fsync", since=before) < named < layer.first("fsync", str(book.path.parent), since=named)


async def test_an_answer_by_a_rule_is_on_disk_before_the_agent_gets_it(
    env: Env, fake: FakeAgent, layer: FileLayer
) -> None:
    heard_by(layer, fake)
    keep(env, "git push")
    async with env.hosting(fake):
        link = await env.linked()
        fake.say(asked("git push"))
        await auntil(lambda: layer.has("agent told"))
        await link.aclose()

    written = layer.first("write", LOG, b"request.answered")
    assert written < layer.first("fsync", LOG, since=written) < layer.first("agent told")


def impatient(patch: pytest.MonkeyPatch) -> list[int]:
    """Have hosts wait for the log for a moment at a time; how much they wait for, each time."""
    waits: list[int] = []
    reached = async_writer.LogWriter._wait_for_count

    async def counted(self: async_writer.LogWriter, count: int, limit_s: float | None) -> bool:
        waits.append(count)
        return await reached(self, count, limit_s)

    for module in (async_writer, agent_runner, host):
        patch.setattr(module, "WRITTEN_S", 0.01)
    patch.setattr(async_writer.LogWriter, "_wait_for_count", counted)
    return waits


async def test_a_slow_disk_is_waited_for_before_anything_is_confirmed(
    env: Env, fake: FakeAgent, layer: FileLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard_by(layer, fake)
    waits = impatient(monkeypatch)
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        layer.is_going.clear()
        answered = asyncio.create_task(do(link, answer(request)))
        try:
            await auntil(lambda: layer.has("fsync asked", LOG))
            waits.clear()
            await auntil(lambda: len(waits) > 2, what="the limit was over more than once")

            assert not answered.done()
            assert not layer.has("agent told")
        finally:
            layer.is_going.set()
        await answered
        await link.aclose()

    assert layer.first("fsync", LOG) < layer.first("agent told")


async def test_an_answer_on_a_screen_is_on_disk_before_it_is_confirmed(
    layer: FileLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.0)
    waits = impatient(monkeypatch)
    async with asking_on_screen(dialog("git push")) as (tmux, link, _):
        request = await asked_on_screen(tmux)
        wish = Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)
        layer.is_going.clear()
        answered = asyncio.create_task(link.ask(ExecuteCommand(n=0, session=request.session, command=wish), limit_s=40))
        try:
            await auntil(lambda: layer.has("fsync asked", LOG))
            waits.clear()
            await auntil(lambda: len(waits) > 2, what="the limit was over more than once")

            assert layer.has("write", LOG, b"request.answered")
            assert not answered.done()
        finally:
            layer.is_going.set()
        await answered
        assert [Decision.ALLOW] == [fact.decision for fact in tmux.only(RequestAnswered, request.session)]


DECISIONS: list[Callable[[str], list[str]]] = [
    lambda plan: ["pause", plan],
    lambda plan: ["abort", plan],
    lambda plan: ["skip", plan, "1"],
]


@pytest.mark.parametrize("decision", DECISIONS, ids=["pause", "abort", "skip"])
def test_a_plan_decision_is_confirmed_only_once_it_is_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], decision: Callable[[str], list[str]]
) -> None:
    """The power is cut as the line should reach the disk: it was written by then, and nothing was printed."""
    cli = PlanCli(tmp_path, capsys)
    try:
        plan = cli.agreed().plan
        command = ["plan", *decision(plan)]
        done = subprocess.run(
            [sys.executable, "-P", "-c", CUT, f"{plan}/{LOG}", *command], capture_output=True, text=True, check=False
        )

        assert (-signal.SIGKILL, "", "") == (done.returncode, done.stdout, done.stderr)
        assert f'"deed":"{command[1]}"' in (cli.paths.plan(plan) / LOG).read_text()
    finally:
        cli.close()


def test_a_plan_starts_only_once_its_consent_is_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: FileLayer
) -> None:
    cli = PlanCli(tmp_path, capsys)
    try:
        plan = cli.agreed().plan
    finally:
        cli.close()

    named = layer.first("replace", "agreed/tidy.md")
    assert layer.first("fsync", f"{plan}/agreed", since=named) < layer.first("write", LOG, b"plan.began")
    assert "agreed/.tidy.md." in layer.steps[layer.first("fsync")][1]
    began = layer.first("write", LOG, b"plan.began")
    assert layer.has("fsync", LOG, since=began)


def test_a_changed_plan_is_on_disk_before_the_change_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: FileLayer
) -> None:
    cli = PlanCli(tmp_path, capsys)
    try:
        book = cli.agreed()
        before = len(layer.steps)
        apply_edit(book, PLAN.replace("less", "more"))
    finally:
        cli.close()

    synced = layer.first("fsync", since=before)
    named = layer.first("replace", "agreed/tidy.md", since=before)
    changed = layer.first("write", LOG, b"plan.changed", since=before)
    assert "agreed/.tidy.md." in layer.steps[synced][1]
    assert synced < named < layer.first("fsync", f"{book.plan}/agreed", since=named) < changed
    assert layer.has("fsync", LOG, since=changed)


def test_a_setting_is_on_disk_before_it_replaces_the_old_one(env: Env, layer: FileLayer) -> None:
    """A power cut leaves the old file or the new one, and never an empty one."""
    put(env.paths, "ui.bell", "false")

    file = env.paths.config_file
    synced = layer.first("fsync")
    assert f"{file.parent}/.{file.name}." in layer.steps[synced][1]
    assert synced < layer.first("replace", str(file))


async def test_while_an_answer_is_written_to_disk_another_one_is_refused(
    env: Env, fake: FakeAgent, layer: FileLayer
) -> None:
    heard_by(layer, fake)
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked())
        layer.is_going.clear()
        answered = asyncio.create_task(do(link, answer(request)))
        try:
            await auntil(lambda: layer.has("fsync asked", LOG))
            other = await env.linked()
            with pytest.raises(RequestClosedError):
                await do(other, answer(request, Decision.DENY))
            await other.aclose()
            assert not answered.done()
        finally:
            layer.is_going.set()
        await answered
        await link.aclose()


INTENDED = b'"step":"intended"'


async def test_a_step_of_a_sandbox_is_on_disk_as_intended_before_its_backend_takes_it(
    env: Env, fake: FakeAgent, layer: FileLayer
) -> None:
    async with env.hosting(fake):
        fake.say(SandboxPhaseChanged(at=0.0, phase=SandboxPhase.CREATING, step="intended"))
        await auntil(lambda: layer.has("write", LOG, INTENDED))
        written = layer.first("write", LOG, INTENDED)
        fake.say(SandboxPhaseChanged(at=0.0, phase=SandboxPhase.RUNNING))
        await auntil(lambda: layer.has("write", LOG, b'"phase":"running"'))

    assert written < layer.first("fsync", LOG, since=written) < layer.first("write", LOG, b'"phase":"running"')


async def test_the_end_of_an_agents_sandbox_is_on_disk_before_its_processes_are_ended(
    env: Env, layer: FileLayer
) -> None:
    launch = env.wants(backend="fake")
    log_writer = LogWriter(await asyncio.to_thread(SessionLog, env.paths, launch.session))
    try:
        log_writer.note(SandboxPhaseChanged(at=0.0, phase=SandboxPhase.RUNNING, runtime=SandboxRuntime(pid=1)))
        await SandboxTransitions(launch, log_writer).expire("unused")
        layer.note("processes ended")
    finally:
        await log_writer.aclose(10)

    written = layer.first("write", LOG, INTENDED)
    assert written < layer.first("fsync", LOG, since=written) < layer.first("processes ended")
