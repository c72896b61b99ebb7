"""Which processes belong to an agent: real ones, by their ancestors and what they carry."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kasmon.host import kin
from kasmon.host.kin import is_agents_own
from tests.waiting import until

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                         start_new_session=len(sys.argv) > 1, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""

BESIDE = """
import sys
from kasmon.host import kin
kin.HAS_PROC &= sys.argv[2] == "True"
print(kin.is_agents_own(int(sys.argv[1])))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(program: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=dict(os.environ) | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def seen_by_another_host(pid: int, has_proc: bool = True) -> bool:
    """What a process beside this one makes of *pid*."""
    command = [sys.executable, "-P", "-c", BESIDE, str(pid), str(has_proc)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout == "True\n"


def test_the_agent_is_its_own(start: Start) -> None:
    agent = start(SLEEPER)
    assert "up" == said(agent)

    assert is_agents_own(agent.pid, {agent.pid})


@pytest.mark.parametrize("detached", [[], ["detached"]], ids=["child", "in a session of its own"])
def test_a_child_of_the_agent_is_its_own(start: Start, detached: list[str]) -> None:
    agent = start(PARENT, *detached)

    assert is_agents_own(int(said(agent)), {agent.pid})


def test_a_child_of_this_process_is_an_agents_since_agents_run_under_their_host(start: Start) -> None:
    child = start(SLEEPER)
    assert "up" == said(child)

    assert is_agents_own(child.pid)


def test_a_process_with_the_variable_is_an_agents_wherever_it_runs(start: Start) -> None:
    marked, plain = start(PARENT, KASMON_SESSION="abcdefgh"), start(PARENT)

    assert [True, False] == [seen_by_another_host(int(said(parent))) for parent in (marked, plain)]


def test_this_process_itself_is_nobodys(start: Start) -> None:
    """A person's dashboard."""
    other = start(SLEEPER)
    assert "up" == said(other)

    assert not is_agents_own(os.getpid(), {other.pid})


def test_a_process_that_is_gone_counts_as_an_agents(start: Start) -> None:
    process = start(SLEEPER)
    assert "up" == said(process)
    process.kill()
    process.wait(10)
    until(lambda: kin._look(process.pid) is None)

    assert is_agents_own(process.pid)


@pytest.mark.parametrize("pid", [0, -1])
def test_a_pid_that_the_system_does_not_tell_counts_as_an_agents(pid: int) -> None:
    assert is_agents_own(pid)


def test_without_proc_it_is_found_out_all_the_same(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS."""
    monkeypatch.setattr(kin, "HAS_PROC", False)
    agent = start(PARENT, KASMON_SESSION="abcdefgh")
    child = int(said(agent))

    assert is_agents_own(child, {agent.pid})
    assert not is_agents_own(os.getpid(), {agent.pid})
    assert seen_by_another_host(child, has_proc=False)
