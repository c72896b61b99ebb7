"""What an agent's program may start and restart, whichever way it takes. Real agents in terminals, real hosts."""

import sys
from collections.abc import Iterator

import pytest

from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.wait import until

PLAN = '[[task]]\ntitle = "one"\nprompt = "say x"\nagent = "scripted"\n'
SCRIPTED = ("--agent", "scripted", "--mode", "sdk")


@pytest.fixture
def kasmon(fork_server: ForkServer) -> Iterator[Cli]:
    line = Cli(fork_server)
    yield line
    line.close()


def start_child(kasmon: Cli, lead: LeadingAgent, name: str = "child") -> None:
    lead.json("new", name, *SCRIPTED)
    kasmon.json("wait", name, "--for", "idle")


def state(kasmon: Cli, name: str) -> str:
    return str(kasmon.json("show", name)["session"]["state"])


def test_an_agent_starts_no_plan_and_decides_about_none(kasmon: Cli) -> None:
    lead, file = start_lead(kasmon), kasmon.home / "plan.toml"
    file.write_text(PLAN)
    by_agent = lead.kasmon("plan", "run", str(file), "--yes")
    plan = kasmon("plan", "run", str(file), "--yes").out.split()[-1]
    decided = lead.kasmon("plan", "abort", plan)
    file.write_text(PLAN + PLAN.replace("one", "two"))
    changed = lead.kasmon("plan", "apply", plan, "--yes")

    assert "an agent cannot start a plan" in by_agent
    assert "an agent cannot decide about a plan" in decided
    assert "an agent cannot change a plan" in changed
    assert [plan] == [each["id"] for each in kasmon.json("plan", "ls")["plans"]]


def test_an_agent_cannot_pass_a_session_off_as_a_plans(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    program = (
        "import asyncio, kasmon\n"
        "spec = kasmon.LaunchSpec(name='child', agent='scripted', plan='made-up', task=1)\n"
        "asyncio.run(kasmon.ExecutionSession(spec).start())\n"
    )

    assert "an agent cannot start sessions of a plan" in lead.run(sys.executable, "-P", "-c", program)
    assert ["lead"] == [each["name"] for each in kasmon.json("ls")["sessions"]]


def test_a_session_of_the_python_interface_has_the_limits(kasmon: Cli) -> None:
    kasmon("config", "fleet.starts", "0")
    lead = start_lead(kasmon)
    program = (
        "import asyncio, kasmon\n"
        "spec = kasmon.LaunchSpec(name='child', agent='scripted')\n"
        "asyncio.run(kasmon.ExecutionSession(spec).start())\n"
    )

    assert "fleet.starts = 0" in lead.run(sys.executable, "-P", "-c", program)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("config", "fleet.depth", "8"), "an agent cannot change settings"),
        (("rules", "rm", "r1"), "an agent cannot revoke rules"),
        (("adopt", "anything"), "an agent cannot adopt a pane"),
        (("trust", ".", "--yes"), "an agent cannot"),
    ],
)
def test_an_agents_program_cannot_do_what_is_the_persons(kasmon: Cli, command: tuple[str, ...], why: str) -> None:
    lead = start_lead(kasmon)
    before = kasmon.places.config_file.read_text()
    (kasmon.home / ".kasmon.toml").write_text("[worktree]\n")

    assert why in lead.kasmon(*command)
    assert before == kasmon.places.config_file.read_text()


def test_a_shell_that_a_person_opened_may_do_all_of_that(kasmon: Cli) -> None:
    write_profile(kasmon)
    program = kasmon.home / "menu"
    program.write_text((kasmon.home / "lead").read_text())
    program.chmod(0o755)
    done = kasmon("new", "shell", "--", str(program))
    assert 0 == done.code, done.err
    shell = LeadingAgent(kasmon, done.out.strip())
    file = kasmon.home / "plan.toml"
    file.write_text(PLAN)

    assert "8" == shell.kasmon("config", "fleet.depth", "8").strip()
    plan = shell.kasmon("plan", "run", str(file), "--yes").split()[-1]
    until(lambda: len(kasmon.json("ls")["sessions"]) == 2)
    started = next(each for each in kasmon.json("ls")["sessions"] if each["name"] != "shell")
    assert (plan, None) == (started["plan"], started["actor"])


def test_a_restart_by_an_agent_has_the_limits_of_a_start(kasmon: Cli) -> None:
    kasmon("config", "fleet.sessions", "1")
    lead = start_lead(kasmon)
    start_child(kasmon, lead)
    kasmon("stop", "child")
    start_child(kasmon, lead, "second")

    assert "cannot restart 'child': 1 children of 'lead' exist" in lead.kasmon("restart", "child")
    assert "ended" == state(kasmon, "child")
    kasmon("stop", "second")
    lead.kasmon("restart", "child")
    assert "ended" != state(kasmon, "child")


def test_a_restarted_child_is_stopped_when_its_time_is_over(kasmon: Cli) -> None:
    kasmon("config", "fleet.minutes", "0.25")
    lead = start_lead(kasmon)
    start_child(kasmon, lead)
    lead.kasmon("stop", "child")
    lead.kasmon("restart", "child")
    until(lambda: state(kasmon, "child") == "ended")

    shown = kasmon.json("show", "child")["session"]
    assert (2, True) == (shown["generation"], "fleet.minutes = 0.25" in shown["end_why"])
    assert "started it more than fleet.minutes = 0.25 minutes ago" in lead.kasmon("restart", "child")
    assert 0 == kasmon("restart", "child").code


def test_another_state_folder_gives_an_agent_no_sessions(kasmon: Cli) -> None:
    lead, other = start_lead(kasmon), kasmon.home / "other"
    other.mkdir(mode=0o700)
    out = lead.run(*KASMON, "new", "child", *SCRIPTED, XDG_STATE_HOME=str(other))

    assert "this process belongs to an agent, and it is not certain to which" in out
