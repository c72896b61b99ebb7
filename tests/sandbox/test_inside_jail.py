"""The agent inside a real jail: under its seccomp filter, its uid and its mounts, what it promises is the same."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kasmon.errors import AgentLostError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import INTERPRETERS, Interpreter, Policy
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.jail.bubblewrap import Jail
from tests.sandbox.test_inside_ends import DIES, FORKS, HOLD, SHOW, SPINS, WAITS

pytestmark = pytest.mark.sandboxes


@pytest.fixture
def cells(can_jail: None) -> Iterator[list[Channel]]:
    """Two jails of two sessions."""
    with ExitStack() as stack:
        found = []
        for name in "ab":
            jail, policy = Jail(), Policy(session=SessionId(f"inside-{name}"))
            stack.callback(jail.forget, policy)
            runtime = jail.create(policy)
            stack.callback(jail.destroy, policy, runtime)
            found.append(Channel(runtime.socket, name=policy.session))
            stack.callback(found[-1].close)
        yield found


def test_the_same_holds_in_a_jail(cells: list[Channel]) -> None:
    """State, interrupts by time of what spins, waits and forks, deaths, and state that goes over into another jail."""
    first, other = cells
    assert {} == first.prewarm(INTERPRETERS)
    for interpreter in INTERPRETERS:
        first.run(interpreter, HOLD[interpreter], timeout_s=20)
        for code in (SPINS, WAITS, FORKS):
            ran = first.run(interpreter, code[interpreter], timeout_s=0.1)
            assert (124, True) == (ran.exit_code, ran.session_preserved)
        assert "41\n" == first.run(interpreter, SHOW[interpreter], timeout_s=20).stdout
        assert "41\n" != other.run(interpreter, SHOW[interpreter], timeout_s=20).stdout

    other.load_state(first.save_state().content)
    for interpreter in INTERPRETERS:
        assert "41\n" == other.run(interpreter, SHOW[interpreter], timeout_s=20).stdout
        assert not first.run(interpreter, DIES[interpreter], timeout_s=20).session_preserved
        assert first.run(interpreter, HOLD[interpreter], timeout_s=20).restarted


def test_it_runs_as_nobody_of_this_machine_in_the_workspace(cells: list[Channel]) -> None:
    show: dict[Interpreter, str] = {
        "python": "import os; print(os.getuid(), os.getcwd())",
        "bash": "echo $(id -u) $PWD",
        "node": "console.log(process.getuid(), process.cwd())",
    }
    for interpreter, code in show.items():
        assert "1000 /workspace\n" == cells[0].run(interpreter, code, timeout_s=20).stdout


def test_code_that_kills_everything_kills_its_own_jail_and_nobody_is_told_otherwise(cells: list[Channel]) -> None:
    first, other = cells
    with pytest.raises(AgentLostError) as lost:
        first.run("bash", "kill -9 -1", timeout_s=20)

    assert lost.value.may_have_run
    assert "ok\n" == other.run("bash", "echo ok", timeout_s=20).stdout


def test_nothing_of_the_agent_is_left_in_what_the_code_sees(cells: list[Channel]) -> None:
    ran = cells[0].run("bash", "printenv; ls -A /tmp /run /workspace; ls /proc/self/fd", timeout_s=20)

    assert not [name for name in ("LISTEN_FD", "READY_FD", "CONTROL", "KASMON_RUN") if name in ran.stdout]
    assert os.environ["XDG_RUNTIME_DIR"] not in ran.stdout
