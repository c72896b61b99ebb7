"""A permission of a real agent is pushed to a phone, opened there in a real browser, and answered."""

import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision
from kasmon.paths import private_folder, write_private
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, stacked
from tests.support.supervisor.push_server import PushServer
from tests.support.wait import until
from tests.support.web.chromium import Chromium, Page

pytestmark = [pytest.mark.web, pytest.mark.story]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
CHANGED = """
import subprocess, sys, threading
program, gate, *arguments = sys.argv[1:]
agent = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE)
lock = threading.Lock()

def write(line):
    with lock:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

def write_later(line):
    with open(gate) as pipe:
        pipe.read()
    write(line)

for line in agent.stdout:
    if b'"can_use_tool"' in line and b"other.txt" in line:
        threading.Thread(target=write_later, args=(line,), daemon=True).start()
        line = line.replace(b"other.txt", b"first.txt")
    write(line)
sys.exit(agent.wait())
"""
"""Runs the program of its first argument, whose permission for `other.txt` it first passes on as one for `first.txt`,
and as it is, under the same id, once the named pipe `gate` was written to. Claude Code changes none on demand."""


@pytest.fixture
def server() -> Iterator[PushServer]:
    server = PushServer()
    yield server
    server.close()


@pytest.fixture
def phone() -> Iterator[Page]:
    """A tab of 390 by 844 pixels that runs no scripts."""
    home = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    try:
        with Chromium(home) as browser:
            page = browser.page("about:blank")
            page.as_phone()
            page.call("Emulation.setScriptExecutionDisabled", {"value": True})
            yield page
    finally:
        rmtree(home, ignore_errors=True)


@pytest.fixture
def served(stack: Stack, server: PushServer) -> Iterator[PushServer]:
    """The push server, while `kasmon web` runs and each request is pushed to it."""
    private_folder(stack.paths.config)
    target = f'[notify.targets.phone]\nurl = "{server.ntfy}"\nwhen = "always"\nevents = ["asking"]\n'
    write_private(stack.paths.config_file, target.encode())
    served = stack.begun("web", "--json")
    try:
        assert served.stdout is not None
        assert json.loads(served.stdout.readline())["web"]["url"]
        yield server
    finally:
        served.send_signal(signal.SIGTERM)
        served.communicate(timeout=LIMIT_S)


def pushed(server: PushServer, count: int) -> tuple[str, str]:
    """What message number *count* asks, and its link."""
    until(lambda: len(server.messages) >= count, LIMIT_S, f"message {count}")
    line, link = server.messages[count - 1].content["message"].splitlines()
    return line, link


@pytest.mark.parametrize("name", ["claude"])
def test_a_permission_is_pushed_opened_and_allowed_and_its_agent_continues(
    stack: Stack, served: PushServer, phone: Page
) -> None:
    """The same link again gives nothing, and the link of a request that was withdrawn says so."""
    session = stack.new("worker", "go %% bash touch there.txt %% say done")
    line, link = pushed(served, 1)
    assert ("worker has a request", "Bash touch there.txt") == (served.messages[0].content["title"], line)
    phone.go(link)
    until(lambda: "Allow once" in phone.says)
    assert "touch there.txt" in phone.says
    phone.tap("button.allow")
    stack.turned(session)
    assert (stack.agent.workdir / "there.txt").exists()
    [answered] = stack.facts(session, RequestAnswered)
    assert Decision.ALLOW is answered.decision
    assert answered.who.startswith(f"link {link.rpartition('/')[2][:12]}, ")

    phone.go(link)
    until(lambda: "Allowed" in phone.says)
    assert 0 == phone.run("document.querySelectorAll('form, button').length")
    assert "touch there.txt" not in phone.says

    assert 0 == stack("send", session, "go %% bash touch second.txt %% say done").code
    _, second = pushed(served, 2)
    assert 0 == stack("interrupt", session).code
    until(lambda: not stack.json("inbox")["requests"])
    phone.go(second)
    until(lambda: "withdrawn" in phone.says.lower())
    assert 0 == phone.run("document.querySelectorAll('form, button').length")
    assert not (stack.agent.workdir / "second.txt").exists()
    assert 1 == len(stack.facts(session, RequestAnswered))


@pytest.mark.parametrize("name", ["claude"])
def test_a_changed_request_is_reported_and_only_its_new_link_answers_it(
    stack: Stack, served: PushServer, phone: Page
) -> None:
    """The page that is open sends nothing once the request changed, and its agent goes on with the new one."""
    gate, program = stack.path / "gate", stack.path / "claude"
    os.mkfifo(gate)
    words = (sys.executable, "-c", CHANGED, str(stack.agent.program), str(gate))
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    profile = f'[agents.claude]\nprogram = "{program}"\n'
    write_private(stack.paths.config_file, stack.paths.config_file.read_bytes() + profile.encode())
    session = stack.new("worker", "go %% bash touch other.txt %% say done")
    line, link = pushed(served, 1)
    assert "Bash touch first.txt" == line
    phone.go(link)
    until(lambda: "Allow once" in phone.says)

    gate.write_text("")
    line, other = pushed(served, 2)
    phone.tap("button.allow")

    until(lambda: "The agent changed its request. This is the new one; this link cannot answer it." in phone.says)
    assert "Bash touch other.txt" == line
    assert "touch other.txt" in phone.says
    assert "touch first.txt" not in phone.says
    assert 0 == phone.run("document.querySelectorAll('form, button').length")
    assert [] == stack.facts(session, RequestAnswered)
    phone.go(other)
    until(lambda: "Allow once" in phone.says)
    phone.tap("button.allow")
    stack.turned(session)
    assert (stack.agent.workdir / "other.txt").exists()
    assert not (stack.agent.workdir / "first.txt").exists()
    assert 1 == len(stack.facts(session, RequestAnswered))
    phone.go(link)
    until(lambda: "the agent has a different request now" in phone.says.lower())
    assert 0 == phone.run("document.querySelectorAll('form, button').length")
