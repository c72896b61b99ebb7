"""The seed's own TOML block as the config, unchanged: each of its profiles starts, as it says, with its flags split."""

import pytest

from kasmon.model.commands import Mode
from kasmon.model.events import RequestOpened, SessionStarted
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, write_private
from tests.execution.test_interface import SEED
from tests.support.agents.full_stack import PROMPT, Stack, beside, stacked

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.mark.parametrize("name", ["claude"])
def test_both_of_its_profiles_run(stack: Stack) -> None:
    private_folder(stack.paths.config)
    write_private(stack.paths.config_file, SEED.encode())
    own = [word for variable in (*stack.agent.own, "IS_SANDBOX=1") for word in ("--env", variable)]
    for profile in ("coder", "reviewer"):
        done = stack("new", profile, "--agent", profile, *own)
        assert 0 == done.code, done.err
    coder, reviewer = (stack.json("show", profile)["session"] for profile in ("coder", "reviewer"))
    assert [("sdk", "claude", None), ("tmux", "tmux", None)] == [
        (session["mode"], session["backend"], session["fallback"]) for session in (coder, reviewer)
    ]

    session = coder["id"]
    command = stack.agent_of(session).cmdline()
    assert "--permission-mode bypassPermissions" in " ".join(command)
    assert {"--permission-mode", "bypassPermissions"} <= set(command)
    assert Mode.SDK is stack.facts(session, SessionStarted)[0].mode
    assert "--permission-mode" not in stack.agent_of(reviewer["id"]).cmdline()
    assert stack.session(session).bypassing
    stack.turn(session, "go %% bash touch coded.txt %% say done")
    assert (stack.agent.workdir / "coded.txt").exists()
    assert [] == stack.facts(session, RequestOpened)

    stack.shows(reviewer["id"], PROMPT["claude"])
    stack.until_state(reviewer["id"], SessionState.IDLE)
    stack.turn_in_terminal(reviewer["id"], "go %% say reviewed")
