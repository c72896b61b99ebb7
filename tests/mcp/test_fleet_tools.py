"""`kasmon mcp --tools fleet`: an agent drives others. Real processes and hosts, and the official client."""

import subprocess

import pytest

from kasmon.mcp.tool_schemas import FLEET, NEVER, REFUSED_NAMES
from tests.support.agents.fleet_client import FleetClient, ToolClient, lead_of
from tests.support.agents.leading_agent import LeadingAgent, start_lead, write_profile
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.story


async def test_an_agent_starts_prompts_waits_for_and_reads_a_child(kasmon: Cli) -> None:
    async with FleetClient(lead := lead_of(kasmon)) as fleet:
        child = await fleet.ok("start", name="parser", prompt="say hello", agent="scripted")
        await fleet.ok("wait", session="parser", states="idle")
        receipt = (await fleet.ok("prompt", session="parser", text="say again"))["receipt"]
        state = (await fleet.ok("wait", session=child["session"]))["state"]
        read = await fleet.ok("read", session="parser", lines="50")
        listed = await fleet.ok("list")
        proposed = await fleet.ok("finish", session="parser", summary="the parser is done")

    actor = {"session": lead.session, "depth": 0, "machine": ""}
    shown = kasmon.json("show", "parser")["session"]
    assert ("idle", actor, "peer") == (state, receipt["actor"], receipt["by"])
    assert "[From lead, the agent that started you, not from the person you work for]" in read["text"]
    assert [("lead", 0, False), ("parser", 1, True)] == [
        (each["name"], each["depth"], each["yours"]) for each in listed["sessions"]
    ]
    assert (actor, lead.session, "the parser is done") == (shown["actor"], shown["parent"], shown["finish_proposed"])
    assert [actor, actor] == [each["actor"] for each in shown["receipts"]]
    assert (True, actor) == (proposed["proposed"], proposed["by"])
    assert "the agent of lead proposes to finish this session: the parser is done" in kasmon("read", "parser").out


async def test_a_child_works_in_a_worktree_of_its_own_and_its_diff_is_read(kasmon: Cli) -> None:
    repo = Repo(kasmon.home / "repo")
    write_profile(kasmon)
    kasmon("config", "fleet.agents", "scripted")
    async with ToolClient(start_lead(kasmon, "lead", "--tools", "fleet", "--dir", str(repo.folder))) as fleet:
        child = await fleet.ok("start", name="writer", prompt="say ready", agent="scripted", worktree="yes")
        (kasmon.home / child["folder"] / "new.txt").write_text("one\n")
        diff = await fleet.ok("diff", session="writer")

    assert ("kasmon/writer", ["new.txt"]) == (child["branch"], [each["file"] for each in diff["files"]])
    assert "+one" in diff["diff"]


async def test_an_agent_never_answers_trusts_makes_rules_configures_or_pushes(kasmon: Cli) -> None:
    lead = lead_of(kasmon)
    asking = kasmon.new("asking", "ask ls")
    request = kasmon.request()
    async with FleetClient(lead) as fleet:
        told = {name: await fleet.refused(name, session=asking, request=request["id"]) for name in REFUSED_NAMES}
        tools = {tool.name for tool in (await fleet.client.list_tools()).tools}

    assert told == {name: NEVER[never] for name, never in REFUSED_NAMES.items()}
    assert {"answer", "trust", "rule", "config", "push"} == {*NEVER} == {*REFUSED_NAMES.values()}
    assert tools == {tool.name for tool in FLEET}
    assert tools.isdisjoint(REFUSED_NAMES)
    assert request == kasmon.request()
    answered = lead.kasmon("answer", request["id"], "allow", "--digest", request["digest"])
    assert "an agent cannot answer requests" in answered


async def test_a_prompt_cannot_be_a_command_of_the_childs_own_screen(kasmon: Cli) -> None:
    async with ToolClient(lead_of(kasmon)) as fleet:
        await fleet.ok("start", name="child", prompt="!touch executed", agent="scripted")
        await fleet.ok("wait", session="child", states="idle")
        await fleet.ok("prompt", session="child", text="/permissions allow all")
        await fleet.ok("wait", session="child", states="idle")

    sent = [each["prompt"] for each in kasmon.json("show", "child")["session"]["events"] if each.get("prompt")]
    assert sent
    assert [] == [each for each in sent if not each.startswith("[From lead, ")]


async def test_only_sessions_that_the_agent_started_are_prompted_shown_and_finished(kasmon: Cli) -> None:
    other = kasmon.new("other", "say secret")
    kasmon.json("wait", "other", "--for", "idle")
    async with ToolClient(lead_of(kasmon)) as fleet:
        for tool, more in {"prompt": {"text": "x"}, "finish": {"summary": "x"}}.items():
            assert "you did not start it" in await fleet.refused(tool, session=other, **more)
            assert "you did not start it" in await fleet.refused(tool, session="lead", **more)
        for tool in ("read", "wait", "diff"):
            assert "you do not see 'other': you did not start it" in await fleet.refused(tool, session=other)
        assert "no running peer" in await fleet.refused("message", session=other, text="x")
        assert ["lead"] == [each["name"] for each in (await fleet.ok("list"))["sessions"]]
        assert "belongs to no plan" in await fleet.refused("plan")
    assert ["say secret"] == [each["text"] for each in kasmon.json("show", "other")["session"]["receipts"]]


async def test_the_user_may_let_it_see_all_sessions_and_no_more(kasmon: Cli) -> None:
    other = kasmon.new("other", "say secret")
    kasmon.json("wait", "other", "--for", "idle")
    async with ToolClient(lead_of(kasmon, sees="all")) as fleet:
        assert {"lead", "other"} == {each["name"] for each in (await fleet.ok("list"))["sessions"]}
        assert "secret" in (await fleet.ok("read", session=other))["text"]
        assert "you did not start it" in await fleet.refused("prompt", session=other, text="x")


LIMITS: tuple[tuple[dict[str, str], dict[str, str], str], ...] = (
    ({}, {"agent": "claude"}, "cannot start 'claude': the person allows 'lead', 'scripted'."),
    ({}, {"sandbox": "jail"}, "cannot choose the sandbox 'jail'"),
    ({}, {"machine": "gpu-1"}, "cannot reach sessions of 'gpu-1'"),
    ({"depth": "0"}, {}, "fleet.depth = 0"),
    ({"sessions": "0"}, {}, "fleet.sessions = 0"),
    ({"starts": "0"}, {}, "fleet.starts = 0"),
    ({"money": "$0"}, {}, "fleet.money = '$0'"),
    ({"tokens": "0k"}, {}, "fleet.tokens = '0k'"),
)
"""Settings, what is given to the tool, and why it is refused."""


async def test_a_limit_is_named_when_it_refuses_a_start(kasmon: Cli) -> None:
    lead = lead_of(kasmon)
    usual = kasmon.paths.config_file.read_text()
    async with ToolClient(lead) as fleet:
        for settings, given, why in LIMITS:
            kasmon.paths.config_file.write_text(usual)
            for setting, value in settings.items():
                assert 0 == kasmon("config", f"fleet.{setting}", value).code
            assert why in await fleet.refused("start", name="child", prompt="say x", **({"agent": "scripted"} | given))
            if settings:
                assert why in lead.kasmon("new", "child", "--agent", "scripted", "--mode", "sdk")
    assert ["lead"] == [each["name"] for each in kasmon.json("ls")["sessions"]]


UNUSABLE = (
    ("start", {"name": "child", "prompt": ""}, "start needs 'prompt'."),
    ("start", {"name": "-x", "prompt": "x"}, "not a valid session name"),
    ("start", {"name": "child", "prompt": "x", "worktree": "maybe"}, "'worktree' must be one of yes, no"),
    ("start", {"name": "child", "prompt": "x", "folder": "/"}, "'folder' is one on another machine."),
    ("prompt", {"session": "lead", "text": ""}, "prompt needs 'text'."),
    ("read", {"session": "lead", "lines": "0"}, "'lines' must be a number from 1 to 500"),
    ("wait", {"session": "lead", "seconds": "601"}, "'seconds' must be a number from 1 to 600"),
)


async def test_an_invalid_tool_argument_is_named(kasmon: Cli) -> None:
    async with FleetClient(lead_of(kasmon)) as fleet:
        for tool, given, why in UNUSABLE:
            assert why in await fleet.refused(tool, **given)


async def test_a_setting_that_the_user_tightens_applies_from_then_on(kasmon: Cli) -> None:
    other = kasmon.new("other", "say secret")
    kasmon.json("wait", "other", "--for", "idle")
    async with ToolClient(lead_of(kasmon, sees="all")) as fleet:
        assert "secret" in (await fleet.ok("read", session=other))["text"]
        kasmon("config", "fleet.sees", "own")
        kasmon("config", "fleet.agents", "other")
        assert "you do not see" in await fleet.refused("read", session=other)
        assert ["lead"] == [each["name"] for each in (await fleet.ok("list"))["sessions"]]
        assert "cannot start 'scripted'" in await fleet.refused("start", name="x", prompt="x", agent="scripted")


async def test_a_plan_of_others_is_shown_only_if_the_user_lets_it_see_all(kasmon: Cli) -> None:
    file = kasmon.home / "plan.toml"
    file.write_text('[[task]]\ntitle = "one"\nprompt = "say x"\nagent = "scripted"\n')
    plan = kasmon("plan", "run", str(file), "--yes").out.split()[-1]
    async with ToolClient(lead_of(kasmon)) as fleet:
        assert f"there is no plan '{plan}' that you see" in await fleet.refused("plan", plan=plan)
        kasmon("config", "fleet.sees", "all")
        assert "one" == (await fleet.ok("plan", plan=plan))["tasks"][0]["title"]


async def test_ended_and_removed_children_count_as_started(kasmon: Cli) -> None:
    lead = lead_of(kasmon, starts="1")
    lead.kasmon("new", "child", "--agent", "scripted", "--mode", "sdk")
    kasmon("stop", "child")
    kasmon("rm", "child")

    assert "1 children of 'lead' were started" in lead.kasmon("new", "second", "--agent", "scripted", "--mode", "sdk")


async def test_a_child_whose_time_is_over_is_stopped_and_cannot_be_prompted(kasmon: Cli) -> None:
    lead = lead_of(kasmon, minutes="0.05")
    lead.kasmon("new", "child", "--agent", "scripted", "--mode", "sdk")
    until(lambda: kasmon.json("show", "child")["session"]["state"] == "ended")
    assert "fleet.minutes = 0.05" in kasmon.json("show", "child")["session"]["end_why"]
    kasmon("restart", "child")

    assert "started it more than fleet.minutes = 0.05 minutes ago" in lead.kasmon("send", "child", "say x")
    assert 0 == kasmon("send", "child", "say x").code


async def test_the_tools_are_off_unless_the_user_enables_them(kasmon: Cli) -> None:
    lead = start_lead(kasmon)
    off = lead.kasmon("mcp", "--tools", "fleet")
    given = lead.kasmon("new", "child", "--agent", "scripted", "--tools", "fleet")

    assert "session 'lead' may not use the fleet tools: they are off" in off
    assert "an agent cannot give a session tools" in given
    assert "this process belongs to no session's agent" in kasmon("mcp", "--tools", "fleet").err


async def test_a_profile_gives_its_sessions_the_tools(kasmon: Cli) -> None:
    write_profile(kasmon, 'tools = ["fleet"]')
    async with FleetClient(lead := start_lead(kasmon)) as fleet:
        assert {"session": lead.session, "depth": 0, "machine": ""} == (await fleet.ok("list"))["you"]


async def test_a_server_cannot_name_another_session_as_its_own(kasmon: Cli) -> None:
    lead, other = lead_of(kasmon), start_lead(kasmon, "other")
    command = other.relay(*KASMON, "mcp", "--tools", "fleet", merged=True, KASMON_SESSION=lead.session)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert "session 'other' may not use the fleet tools" in done.stdout


async def test_a_message_reaches_the_session_above(kasmon: Cli) -> None:
    lead = lead_of(kasmon, depth="2")
    lead.kasmon("new", "second", "--agent", "lead")
    second = LeadingAgent(kasmon, kasmon.json("show", "second")["session"]["id"])
    second.kasmon("new", "third", "--agent", "scripted", "--mode", "sdk")
    async with ToolClient(lead) as fleet:
        sent = await fleet.ok("message", session="third", text="say hello")
        assert (await fleet.ok("wait", session="third", states="idle"))["depth"] == 2

    assert {"session": lead.session, "depth": 0, "machine": ""} == sent["receipt"]["actor"]


def test_stopping_a_parent_asks_about_its_children(kasmon: Cli) -> None:
    lead = lead_of(kasmon)
    lead.kasmon("new", "child", "--agent", "scripted", "--mode", "sdk")

    def states() -> list[str]:
        return [kasmon.json("show", name)["session"]["state"] for name in ("lead", "child")]

    unasked = kasmon("stop", "lead")
    assert (4, True) == (unasked.code, "sessions that its agent started still run" in unasked.err)
    assert 4 == kasmon("stop", "-", given="lead\n").code
    assert "ended" not in states()
    code, shown = kasmon.terminal("stop", "lead", typed=[("Stop these too?", "n\n")])
    assert (0, True) == (code, "their agents started child" in shown)
    assert ["ended", "idle"] == states()


def test_stopping_a_parent_stops_its_children_if_that_is_chosen(kasmon: Cli) -> None:
    lead = lead_of(kasmon)
    child = lead.json("new", "child", "--agent", "scripted", "--mode", "sdk")["session"]["id"]
    stopped = kasmon.json("stop", "lead", "--children", "stop")

    assert ([child], "ended") == (stopped["children"], kasmon.json("show", "child")["session"]["state"])


def test_the_list_shows_children_below_the_session_that_started_them(kasmon: Cli) -> None:
    lead = lead_of(kasmon)
    lead.kasmon("new", "child", "--agent", "scripted", "--mode", "sdk")
    kasmon.new("other", "say x")
    lines = [line for line in kasmon("ls").out.splitlines() if "lead" in line or "child" in line]

    assert ["lead", "child"] == [name for line in lines for name in ("lead", "child") if name in line.split()[:4]]
