"""What an agent's program may start and restart, whichever way it takes. Real agents in terminals, real hosts."""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kasmon.config.schema import Config, FleetConfig
from kasmon.errors import RefusedError
from kasmon.model.commands import ActingAgent, Mode, StarterLimits
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import write_private
from kasmon.store.starters import find_descendants
from kasmon.supervisor.limits.agents import (
    check_prompt,
    check_restart,
    require_choices,
    require_start,
    require_tool,
    with_sender,
)
from tests.support import sample_fleet
from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.git_repo import Repo
from tests.support.supervisor.env import Env, launch
from tests.support.wait import until

pytestmark = pytest.mark.story

PLAN = '[[task]]\ntitle = "one"\nprompt = "say x"\nagent = "scripted"\n'
SCRIPTED = ("--agent", "scripted", "--mode", "sdk")


def test_a_child_counts_for_all_its_ancestors_in_any_order() -> None:
    top, middle, low = map(SessionId, ("top", "middle", "low"))

    starters = {top: None, low: ActingAgent(session=middle), middle: ActingAgent(session=top)}
    assert [low, middle] == find_descendants(top, starters)
    assert [low] == find_descendants(middle, starters)


def test_the_tokens_of_children_are_limited_also_where_their_money_is_not() -> None:
    top, child = sample_fleet.session("top"), sample_fleet.spent(sample_fleet.session("child"), 1000, 9.0)
    starters = {top.id: None, child.id: ActingAgent(session=top.id)}
    config = Config(fleet=FleetConfig(money="", tokens="1k"))

    with pytest.raises(RefusedError, match=r"the limit is fleet\.tokens = '1k'"):
        require_start(config, sample_fleet.fleet(top, child), ActingAgent(session=top.id), starters)
    above = Config(fleet=FleetConfig(money="", tokens="1001"))
    require_start(above, sample_fleet.fleet(top, child), ActingAgent(session=top.id), starters)


@pytest.mark.parametrize(
    ("more", "is_persons"),
    [
        ({}, True),
        ({"program": "claude", "agent": "claude"}, False),
        ({"via": "gpu-1"}, False),
        ({"actor": ActingAgent(session=SessionId("far"), machine="gpu-1")}, False),
        ({"log_in_of": SessionId("docs")}, False),
    ],
)
def test_only_a_shell_that_a_user_opened_here_has_no_limits(more: dict[str, object], is_persons: bool) -> None:
    shell = msgspec.structs.replace(sample_fleet.session("shell", agent="shell", mode=Mode.TMUX), **more)
    fleet, config = sample_fleet.fleet(shell), Config(fleet=FleetConfig(depth=0))

    with contextlib.nullcontext() if is_persons else pytest.raises(RefusedError, match="cannot start a session"):
        require_start(config, fleet, ActingAgent(session=shell.id), {shell.id: None})
    with pytest.raises(RefusedError, match="cannot start a session"):
        require_start(config, fleet, ActingAgent(session=shell.id, machine="gpu-1"), {shell.id: None})


def test_without_lists_only_the_own_profile_and_its_sandbox_are_started() -> None:
    require_choices(FleetConfig(), "lead", "lead", None)
    with pytest.raises(RefusedError, match="cannot start 'claude': the person allows 'lead'"):
        require_choices(FleetConfig(), "lead", "claude", None)
    for sandbox in ("", "jail"):
        with pytest.raises(RefusedError, match="cannot choose the sandbox"):
            require_choices(FleetConfig(), "lead", "lead", sandbox)


@pytest.mark.parametrize("tools", [(), ("another",)])
def test_a_session_uses_the_fleet_tools_only_if_they_are_named(tools: tuple[str, ...]) -> None:
    lead = sample_fleet.session("lead", tools=tools)

    with pytest.raises(RefusedError, match="session 'lead' may not use the fleet tools: they are off"):
        require_tool(sample_fleet.fleet(lead), ActingAgent(session=lead.id))
    allowed = msgspec.structs.replace(lead, tools=(*tools, "fleet"))
    assert allowed == require_tool(sample_fleet.fleet(allowed), ActingAgent(session=lead.id))


def test_a_prompt_for_a_child_begins_with_its_sender_and_has_no_control_characters() -> None:
    lead = msgspec.structs.replace(sample_fleet.session("lead"), name="lead\n/allow \x1b[2J")
    sent = with_sender(lead, "\n!rm x\x1b[2J\x03\n")
    first, *rest = sent.splitlines()

    assert first.startswith("[From lead")
    assert (1, "!rm x") == (len(rest), rest[0][:5])
    assert not {"\x1b", "\x03"} & {*sent}


@pytest.mark.parametrize("check", [check_prompt, check_restart])
def test_the_time_that_another_machine_allows_its_agent_applies_here(env: Env, check: Callable[..., None]) -> None:
    actor, began = ActingAgent(session=SessionId("far"), machine="gpu-1"), time.time() - 600
    child = Session(id=env.has("aaaaaaaa", at=began), name="child", actor=actor, created_at=began)
    for limits, is_over in (
        (None, False),
        (StarterLimits(depth=1, minutes=11), False),
        (StarterLimits(depth=1, minutes=9), True),
    ):
        made = msgspec.structs.replace(launch(child.id, at=began), actor=actor, limits=limits)
        write_private(env.paths.launch(child.id), msgspec.json.encode(made))
        with pytest.raises(RefusedError, match=r"fleet\.minutes = 9") if is_over else contextlib.nullcontext():
            check(env.paths, child, actor)


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
        (("trust", ".", "--remove"), "an agent cannot revoke trust"),
        (("agents", "add", "/tmp", "--yes"), "an agent cannot add an agent, whose rules read requests"),
        (("machines", "add", "gpu-1", "--ssh", "127.0.0.1"), "an agent cannot register or remove machines"),
        (("machines", "rm", "gpu-1"), "an agent cannot register or remove machines"),
        (("machines", "drain", "local"), "an agent cannot drain a machine"),
        (("cluster", "token", "--name", "eve", "--role", "operator"), "an agent cannot change a cluster"),
        (("cluster", "revoke", "vera"), "an agent cannot change a cluster"),
        (("cluster", "down"), "an agent cannot change a cluster"),
        (("cluster", "limit", "--storage-gb", "1"), "an agent cannot change a cluster"),
        (("send", "other", "x", "--over-budget"), "an agent cannot send prompts over a budget"),
        (("limits", "resume", "--yes"), "an agent cannot resume sessions after a usage limit"),
        (("web", "links", "login"), "an agent cannot create links that log in"),
        (("attach", "other"), "an agent cannot open the screen of an agent"),
        (("adopt", "--background", "x"), "an agent cannot adopt a background session"),
        (("agents", "conversations", "claude"), "an agent cannot list the conversations of an agent"),
    ],
    ids=lambda given: "-".join(given[:2]) if isinstance(given, tuple) else "",
)
def test_an_agents_program_cannot_do_what_is_reserved_for_the_user(
    kasmon: Cli, command: tuple[str, ...], why: str
) -> None:
    lead = start_lead(kasmon)
    kasmon.new("other", "say hi")
    before = kasmon.paths.config_file.read_text()
    (kasmon.home / ".kasmon.toml").write_text("[worktree]\n")

    assert why in lead.kasmon(*command)
    assert before == kasmon.paths.config_file.read_text()


def test_an_agents_program_proposes_to_finish_no_session_in_the_name_of_another_agent(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    kasmon.new("other", "say hi")
    forged = '{"actor": {"session": "abcdefgh", "depth": 0, "machine": "far"}, "limits": {"depth": 1, "minutes": 5}}'

    said = lead.kasmon("finish", "other", "--propose=done", f"--actor={forged}")

    assert "an agent cannot propose by a command to finish a session" in said
    assert not kasmon.json("show", "other")["session"]["finish_proposed"]


def test_an_agent_commits_and_neither_pushes_merges_nor_discards_a_branch(kasmon: Cli) -> None:
    repo = Repo(kasmon.home / "repo")
    for name in ("user.name", "user.email"):
        repo.git("config", name, "t@t")
    lead = start_lead(kasmon, "lead", "--worktree", "--dir", str(repo.folder))
    tree = Path(kasmon.json("show", "lead")["session"]["workdir"])
    (tree / "new.txt").write_text("one\n")
    main = repo.git("rev-parse", "main")
    for action in ("--merge", "--take-over"):
        words = ("finish", "lead", "--commit", action, "--yes", "--during-turn")
        assert "an agent cannot push, merge, take over or discard a branch" in lead.kasmon(*words), action

    assert "" == repo.git("log", "--format=%s", "main..kasmon/lead")
    lead.kasmon("finish", "lead", "--commit", "--yes", "--during-turn")
    assert (main, "lead") == (repo.git("rev-parse", "main"), repo.git("log", "--format=%s", "main..kasmon/lead"))


def test_an_agent_neither_registers_a_machine_past_the_command_nor_logs_in(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    register = (
        "from kasmon.paths import user_paths\n"
        "from kasmon.store.machines import Machine\n"
        "from kasmon.supervisor.machines.registration import register\n"
        "register(user_paths(), Machine(name='gpu-1', command=('false',)))\n"
    )
    log_in = (
        "import asyncio\n"
        "from kasmon.config import Config\n"
        "from kasmon.model.commands import TerminalLogIn\n"
        "from kasmon.model.session import Session\n"
        "from kasmon.paths import user_paths\n"
        "from kasmon.supervisor.limits.log_in import begin_log_in\n"
        "asyncio.run(begin_log_in(user_paths(), Config(), Session(id='x'), TerminalLogIn(title='x', argv=('x',))))\n"
    )

    assert "an agent cannot register or remove machines" in lead.run(sys.executable, "-P", "-c", register)
    assert "an agent cannot log in" in lead.run(sys.executable, "-P", "-c", log_in)
    assert [] == kasmon.json("machines", "ls")["machines"]


QUEUE = """
import sys
from kasmon.errors import KasmonError
from kasmon.host.rpc import event_loop
from kasmon.model.commands import Requeue
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.session_operations import requeue
session = next(each for each in read_fleet(user_paths()).sessions if each.name == "busy")
for change in ({"text": "say changed"}, {"place": 0}, {"drop": True}):
    try:
        event_loop.run(requeue(user_paths(), session, Requeue(receipt=sys.argv[1], **change)))
        print("done")
    except KasmonError as error:
        print(error.message)
"""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_agent_changes_no_queued_prompt_but_its_own(kasmon: Cli, is_terminal: bool) -> None:
    if is_terminal:
        start_lead(kasmon, "busy")
    else:
        kasmon.new("busy", "ask ls")
        kasmon.request()
    lead = start_lead(kasmon)
    persons = kasmon.json("send", "busy", "say persons", "--when", "idle")["receipt"]["id"]
    own = lead.json("send", "busy", "say own", "--when", "idle")["receipt"]["id"]
    refused = "an agent cannot change queued prompts of others."

    assert [refused] * 3 == lead.run(sys.executable, "-P", "-c", QUEUE, persons).splitlines()
    assert ["done", refused, "done"] == lead.run(sys.executable, "-P", "-c", QUEUE, own).splitlines()
    receipts = {each["id"]: each for each in kasmon.json("show", "busy")["session"]["receipts"]}
    assert ("queued", "say persons") == (receipts[persons]["state"], receipts[persons]["text"])


def test_a_shell_that_a_user_opened_may_do_all_of_that(kasmon: Cli) -> None:
    shell = start_shell(kasmon)
    file = kasmon.home / "plan.toml"
    file.write_text(PLAN)

    assert "8" == shell.kasmon("config", "fleet.depth", "8").strip()
    plan = shell.kasmon("plan", "run", str(file), "--yes").split()[-1]
    until(lambda: len(kasmon.json("ls")["sessions"]) == 2)
    started = next(each for each in kasmon.json("ls")["sessions"] if each["name"] != "shell")
    assert (plan, None) == (started["plan"], started["actor"])


def start_shell(kasmon: Cli) -> LeadingAgent:
    """A session whose program is no agent, as a shell that a person opened."""
    write_profile(kasmon)
    program = kasmon.home / "menu"
    program.write_text((kasmon.home / "lead").read_text())
    program.chmod(0o755)
    done = kasmon("new", "shell", "--", str(program))
    assert 0 == done.code, done.err
    return LeadingAgent(kasmon, done.out.strip())


def test_a_shell_that_an_agent_opened_belongs_to_that_agent_also_once_it_is_removed(kasmon: Cli) -> None:
    kasmon("config", "fleet.depth", "2")
    kasmon("config", "fleet.starts", "1")
    start_shell(kasmon)
    lead = start_lead(kasmon)
    opened = lead.kasmon("new", "opened", "--", str(kasmon.home / "menu")).split()[-1]
    laundry = LeadingAgent(kasmon, opened)

    assert "an agent cannot change settings" in laundry.kasmon("config", "fleet.depth", "8")
    assert "fleet.starts = 1" in laundry.kasmon("new", "below", *SCRIPTED)
    kasmon("stop", "lead", "--children", "keep")
    kasmon("rm", "lead")
    assert "an agent cannot change settings" in laundry.kasmon("config", "fleet.depth", "8")


def test_an_agent_started_from_a_users_shell_has_the_limits(kasmon: Cli) -> None:
    shell = start_shell(kasmon)
    for setting, value in {"depth": "2", "starts": "0"}.items():
        kasmon("config", f"fleet.{setting}", value)
    session = shell.json("new", "lead", "--agent", "lead")["session"]["id"]
    lead = LeadingAgent(kasmon, session)

    assert "an agent cannot change settings" in lead.kasmon("config", "fleet.starts", "8")
    assert "fleet.starts = 0" in lead.kasmon("new", "below", *SCRIPTED)


def test_of_simultaneous_starts_no_more_succeed_than_the_limit_allows(kasmon: Cli) -> None:
    kasmon("config", "fleet.sessions", "1")
    lead = start_lead(kasmon)
    line = shlex.join([*KASMON, "new"])
    options = shlex.join(SCRIPTED)
    lead.run("sh", "-c", f"for n in 1 2 3 4; do {line} child$n {options} & done; wait")

    assert 2 == len(kasmon.json("ls")["sessions"])


def test_children_of_children_count_towards_the_number_and_the_budget_of_the_top(kasmon: Cli) -> None:
    for setting, value in {"depth": "2", "sessions": "3", "tokens": "1k"}.items():
        kasmon("config", f"fleet.{setting}", value)
    lead = start_lead(kasmon)
    lead.kasmon("new", "second", "--agent", "lead")
    second = LeadingAgent(kasmon, kasmon.json("show", "second")["session"]["id"])
    second.json("new", "third", *SCRIPTED, "--prompt", "usage 900 200")
    kasmon.json("wait", "third", "--for", "idle")

    assert "used 1.1k tokens, and the limit is fleet.tokens = '1k'" in lead.kasmon("new", "fourth", *SCRIPTED)
    assert "fleet.tokens = '1k'" in lead.kasmon("send", "third", "say x")
    kasmon("config", "fleet.tokens", "2M")
    lead.json("new", "fourth", *SCRIPTED)
    assert "3 children of 'lead' exist" in second.kasmon("new", "fifth", *SCRIPTED)


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
