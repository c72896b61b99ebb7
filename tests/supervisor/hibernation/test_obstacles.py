"""What an agent left running: real processes and ports."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kasmon.launch import RUN
from kasmon.model.commands import ReceiptState
from kasmon.model.events import ReceiptChanged, SignalSeen, ToolStarted
from kasmon.supervisor.hibernation.obstacles import TOOL_LEAD_S, find_first_tool, find_first_work, find_running
from tests.support.sample_events import receipt, started, turn

AGENT = """
import socket, subprocess, sys
children, ports = [], []
print("ready", flush=True)
for line in sys.stdin:
    if line == "child\\n":
        children.append(subprocess.Popen(["sleep", "600"]))
        print(children[-1].pid, flush=True)
    elif line == "daemon\\n":
        argv = ["sh", "-c", "sleep 600 >&- 2>&- & echo $!"]
        print(subprocess.run(argv, capture_output=True, text=True).stdout.strip(), flush=True)
    elif line == "port\\n":
        ports.append(socket.create_server(("127.0.0.1", 0)))
        print(ports[-1].getsockname()[1], flush=True)
    elif line == "serve\\n":
        ports[-1].set_inheritable(True)
        children.append(subprocess.Popen(["sleep", "600"], close_fds=False))
        print(children[-1].pid, flush=True)
for child in children:
    child.kill()
"""


class Agent:
    def __init__(self, mark: str) -> None:
        argv, environment = [sys.executable, "-c", AGENT], {RUN: mark, "PATH": os.environ["PATH"]}
        self.process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert "ready" == self.read()

    def read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        return self.read()


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent("aaaa.1")
    yield agent
    agent.process.communicate()


def test_a_helper_since_before_the_first_turn_is_no_obstacle_and_a_later_process_is(agent: Agent) -> None:
    pid = agent.process.pid
    helper = agent.ask("child")
    worked_at = time.time() + 0.01
    assert ("", "") == (find_running(pid, math.inf), find_running(pid, worked_at))
    while time.time() <= worked_at:
        pass

    child = agent.ask("child")

    assert helper != child
    assert f"its process 'sleep' ({child}) runs" == find_running(pid, worked_at)


def test_for_an_agent_that_reports_its_tools_processes_from_before_the_first_one_are_no_obstacle(agent: Agent) -> None:
    pid, worked_at = agent.process.pid, time.time() - 1
    server = agent.ask("child")
    tool_at = time.time() + 0.02
    assert f"its process 'sleep' ({server}) runs" == find_running(pid, worked_at)
    assert "" == find_running(pid, worked_at, tool_at=tool_at) == find_running(pid, worked_at, tool_at=math.inf)
    daemon = agent.ask("daemon")
    try:
        left = find_running(pid, worked_at, tool_at=math.inf)
        assert f"its process 'sleep' ({daemon}) runs" == left, "a hook may have left it"
    finally:
        subprocess.run(["kill", daemon], check=True)
    while time.time() <= tool_at:
        pass

    child = agent.ask("child")

    assert f"its process 'sleep' ({child}) runs" == find_running(pid, worked_at, tool_at=tool_at)


def test_the_first_tool_is_that_since_the_last_start_with_a_lead() -> None:
    tools = [ToolStarted(at=at, call=str(at), tool="Bash") for at in (7.0, 9.0)]

    assert 7.0 - TOOL_LEAD_S == find_first_tool([started(), turn("x"), *tools])
    assert math.inf == find_first_tool([*tools, started(2), turn("x")])


def test_a_process_that_left_its_agent_is_found_by_its_inherited_mark(agent: Agent) -> None:
    daemon = agent.ask("daemon")
    try:
        assert f"its process 'sleep' ({daemon}) runs" == find_running(agent.process.pid, 0.0)
    finally:
        subprocess.run(["kill", daemon], check=True)


def test_an_open_port_of_a_helper_is_an_obstacle_and_one_of_the_agents_program_is_not(agent: Agent) -> None:
    pid, port = agent.process.pid, agent.ask("port")
    assert "" == find_running(pid, math.inf)

    helper = agent.ask("serve")

    assert f"port {port} is open in its process 'sleep' ({helper})" == find_running(pid, math.inf)
    assert "" == find_running(pid, math.inf, "sleep")


def test_the_first_work_is_the_first_prompt_turn_or_busy_screen_since_the_last_start() -> None:
    typed = ReceiptChanged(at=5.0, receipt=receipt(1, ReceiptState.TYPED).receipt)
    queued = ReceiptChanged(at=4.0, receipt=receipt(1, ReceiptState.QUEUED).receipt)
    prints = SignalSeen(at=3.0, source="output", value="printing")
    idle, busy = (SignalSeen(at=at, source="screen", value=value) for at, value in ((3.5, "idle"), (4.5, "asking")))

    assert math.inf == find_first_work([started(), prints, idle, queued])
    assert 4.5 == find_first_work([started(), prints, idle, queued, busy, typed])
    assert 5.0 == find_first_work([busy, started(), typed])
    assert turn("x").at == find_first_work([started(), turn("x"), typed])
    assert math.inf == find_first_work([turn("x"), started(2)])
