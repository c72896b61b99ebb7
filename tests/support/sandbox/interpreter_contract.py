"""What two sandboxes of a tier owe each other and this machine; a tier's tests inherit it and give the tier.

What interpreters promise within one is in `tests/sandbox/guest`, whose tests run in every tier (`tier_agents.py`).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kasmon.errors import AgentLostError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, SandboxPolicy
from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.guest_client.channel import GuestChannel


class InterpreterContract:
    """A subclass gives a fixture `tier`."""

    @pytest.fixture
    def cells(self, tier: SandboxTier) -> Iterator[list[GuestChannel]]:
        """Two sandboxes of two sessions."""
        with ExitStack() as stack:
            found = []
            for name in "ab":
                policy = SandboxPolicy(session=SessionId(f"inside-{name}"))
                stack.callback(tier.forget, policy)
                runtime = tier.create(policy)
                stack.callback(tier.destroy, policy, runtime)
                found.append(GuestChannel(runtime.socket, name=policy.session))
                stack.callback(found[-1].close)
            yield found

    def test_code_runs_as_an_unprivileged_user_in_the_workspace(self, cells: list[GuestChannel]) -> None:
        show: dict[Interpreter, str] = {
            "python": "import os; print(os.getuid(), os.getcwd())",
            "bash": "echo $(id -u) $PWD",
            "node": "console.log(process.getuid(), process.cwd())",
        }
        for interpreter, code in show.items():
            assert "1000 /workspace\n" == cells[0].run(interpreter, code, timeout_s=20).stdout

    def test_code_that_kills_every_process_kills_its_own_sandbox_and_is_reported(
        self, cells: list[GuestChannel]
    ) -> None:
        first, other = cells
        with pytest.raises(AgentLostError) as lost:
            first.run("bash", "kill -9 -1", timeout_s=20)

        assert lost.value.may_have_run
        assert "ok\n" == other.run("bash", "echo ok", timeout_s=20).stdout

    def test_no_part_of_the_agent_is_visible_to_code(self, cells: list[GuestChannel]) -> None:
        ran = cells[0].run("bash", "printenv; ls -A /tmp /run /workspace; ls /proc/self/fd", timeout_s=20)

        assert not [name for name in ("LISTEN_FD", "READY_FD", "CONTROL", "KASMON_RUN") if name in ran.stdout]
        assert os.environ["XDG_RUNTIME_DIR"] not in ran.stdout
