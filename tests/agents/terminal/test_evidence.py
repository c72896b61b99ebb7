"""The real agents in tmux, state by state: what kasmon says of them is right, or it says that it is not sure.

What was judged is written to `.cache/evidence/<agent>.json`; `tests.support.detection.confusion_matrix` makes a table.
"""

import json
import time
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import beside
from tests.support.agents.real_agent import RealAgent
from tests.support.agents.watched_agent import LIMIT_S, ME, watched
from tests.support.detection.scenes.studio import refusing
from tests.support.model_stub import ModelStub
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]
stub = pytest.fixture(beside)
CODEX: Final = ("-c", "features.daemon_auto_start=false", "-a", "on-request", "--sandbox", "workspace-write")
S = SessionState


def test_claude(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(claude, stub, scratch, "--permission-mode", "default") as it:
        it.shows("^❯")
        it.is_judged("idle", S.IDLE)
        it.say("go %% wait 3 %% slow 4 word %% say finished")
        it.is_judged("working", S.WORKING)
        it.shows("● .*word|finished")
        it.is_judged("finished", S.IDLE)
        it.say("go %% bash touch perm.txt %% say done")
        it.shows("Do you want")
        it.is_judged("permission", S.ASKING, "permission")
        it.is_asked("touch perm.txt", "allow", "deny")
        it.key("Escape")
        it.gone("Do you want")
        it.is_judged("refused by Esc, no hook", S.IDLE)
        assert [] == list(it.tmux_env.session(ME).requests)
        it.key("C-u")
        it.say("go %% ask Which colour?|red|blue %% say done")
        it.shows("Enter to select")
        it.is_judged("question", S.ASKING, "question")
        it.key("Escape")
        it.is_judged("question left", S.IDLE)
        it.key("C-u")
        it.say("go %% slow 20 word")
        it.shows("esc to interrupt")
        it.is_judged("working again", S.WORKING)
        it.key("Escape")
        it.gone("esc to interrupt")
        it.is_judged("interrupted", S.IDLE)
        it.key("C-u")
        it.say("go %% fail 400")
        it.shows("API Error")
        it.is_judged("API error", S.IDLE)
        sources = {signal.source for signal in it.tmux_env.session(ME).signals}
        assert {"registry", "hook", "title", "screen"} <= sources


def test_codex(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(codex, stub, scratch, *CODEX) as it:
        it.shows("Ask Codex")
        it.is_judged("idle", S.IDLE)
        it.say("go %% wait 2 %% slow 4 word %% say finished")
        it.is_judged("working", S.WORKING)
        it.shows("• .*finished")
        it.is_judged("finished", S.IDLE)
        command = {
            "cmd": f"touch {codex.workdir}/../x1",
            "sandbox_permissions": "require_escalated",
            "justification": "needs to write outside",
        }
        it.say(f"go %% tool exec_command {json.dumps(command)} %% say done")
        it.shows("Would you like")
        it.is_judged("permission", S.ASKING, "permission")
        it.is_asked("touch .*x1", "allow")
        it.key("Escape")
        it.shows("interrupted")
        it.is_judged("refused by Esc", S.IDLE)
        it.say("go %% slow 20 word")
        it.shows("word3")
        it.is_judged("working again", S.WORKING)
        it.key("Escape")
        it.is_judged("interrupted", S.IDLE)
        it.say("go %% fail 400")
        it.shows("■")
        it.is_judged("API error", S.IDLE)
        sources = {signal.source for signal in it.tmux_env.session(ME).signals}
        assert {"program", "hook", "title", "screen"} <= sources


def test_gemini(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(gemini, stub, scratch) as it:
        it.shows("Type your message")
        it.is_judged("idle", S.IDLE)
        it.say("go %% wait 3 %% slow 4 word %% say finished")
        it.is_judged("working", S.WORKING)
        it.shows("finished$")
        it.is_judged("finished", S.IDLE)
        it.say("go %% bash touch perm.txt %% say done")
        it.shows("Allow execution")
        it.is_judged("permission", S.ASKING, "permission")
        it.is_asked("touch perm.txt", "allow")
        it.key("Escape")
        it.gone("Allow execution")
        it.is_judged("refused by Esc", S.IDLE)
        it.say("go %% wait 20 %% say late")
        it.shows("esc to cancel")
        it.is_judged("working again", S.WORKING)
        it.key("Escape")
        it.shows("cancelled")
        it.is_judged("interrupted", S.IDLE)
        it.say("go %% fail 400")
        it.shows("API Error")
        it.is_judged("API error", S.IDLE)


def test_opencode(opencode: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(opencode, stub, scratch) as it:
        it.shows("Ask anything")
        it.is_judged("idle", S.IDLE)
        it.say("go %% wait 3 %% slow 4 word %% say finished")
        it.is_judged("working", S.WORKING)
        it.shows("finished")
        it.is_judged("finished", S.IDLE)
        it.say("go %% bash touch perm.txt %% say done")
        it.shows("Permission required")
        it.is_judged("permission", S.ASKING, "permission")
        it.is_asked("touch perm.txt", "allow")
        it.key("Enter")
        it.shows("done$")
        it.is_judged("allowed", S.IDLE)
        it.say("go %% slow 30 word")
        it.shows("word3")
        it.is_judged("working again", S.WORKING)
        it.key("Escape")
        it.shows("again to interrupt")
        it.key("Escape")
        it.is_judged("interrupted", S.IDLE)
        it.say("go %% fail 400")
        it.shows("stub failure 400")
        it.is_judged("API error", S.IDLE)


# What does not happen in a talk: prompts at the start, limits, log-ins, crashes.

LIMITED_CODEX: Final = {"type": "usage_limit_reached", "message": "limit", "plan_type": "plus"}
LIMITED_CLAUDE: Final = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
    "anthropic-ratelimit-unified-overage-status": "rejected",
    "x-should-retry": "false",
}


def test_claude_plans_retries_and_is_killed(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(claude, stub, scratch, "--permission-mode", "plan", own={"CLAUDE_CODE_MAX_RETRIES": "10"}) as it:
        it.shows("^❯")
        it.say("go %% plan 1. first step\\n2. second step %% say done")
        it.shows("Would you like to proceed")
        it.is_judged("plan", S.ASKING, "plan")
        it.press("Escape", "Would you like to proceed", gone=True)
        it.is_judged("plan sent back", S.IDLE)
        it.key("C-u")
        it.say("go %% fail 529 4 %% say recovered")
        it.shows("(?i)retrying in")
        it.is_judged("retries", S.WORKING)
        it.key("Escape")
        it.gone("(?i)retrying in")
        it.is_judged("retries, interrupted", S.IDLE)
        it.kill()
        it.is_judged("killed", S.ENDED)


def test_claude_has_a_task_behind_it_and_loses_its_login(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    command = {"command": "python3 -c 'import time; time.sleep(60)'", "run_in_background": True}
    with watched(claude, stub, scratch, "--dangerously-skip-permissions", own={"IS_SANDBOX": "1"}) as it:
        it.shows("Bypass")
        it.is_judged("warning before it bypasses", S.ASKING, "question")
        it.key("Down")
        it.shows("❯ Yes")
        it.key("Enter")
        it.shows("^❯")
        it.is_judged("idle, bypassing", S.IDLE)
        it.say(f"go %% tool Bash {json.dumps(command)} %% say started")
        it.shows("● started")
        it.gone("esc to interrupt")
        it.is_judged("task in the background", S.IDLE)
        it.say("go %% fail 401")
        it.shows("API Error: 401")
        it.is_judged("login lost", S.ASKING, "auth")


def test_claude_at_its_limit(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    stub.must_be_called = False
    resets_at = int(time.time()) + 2 * 3600
    headers = {"content-type": "application/json", "anthropic-ratelimit-unified-reset": str(resets_at)}
    body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "limit"}})
    with refusing(429, body, {**headers, **LIMITED_CLAUDE}) as url:
        own = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-" + "x" * 40}
        with watched(claude, stub, scratch, own=own, without="ANTHROPIC_API_KEY") as it:
            it.shows("^❯")
            it.say_until("say hello", "limit")
            it.is_judged("limit", S.LIMITED)
            assert abs((it.tmux_env.session(ME).limited_until or 0) - resets_at) < 3700


def test_codex_at_its_limit(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    """Its own report is "error" only; idle would be wrong. Its rollout has the limits of its account.

    At 100 % of a window, codex 0.169 asks first whether to use a smaller model: a menu instead of the input box.
    """
    stub.must_be_called = False
    resets_at = int(time.time()) + 2 * 3600
    body = json.dumps({"error": {**LIMITED_CODEX, "resets_at": resets_at}})
    headers = {
        "content-type": "application/json",
        "x-codex-primary-used-percent": "61",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(resets_at),
        "x-codex-secondary-used-percent": "42",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": str(resets_at + 86400),
    }
    with (
        refusing(429, body, headers) as url,
        watched(codex, stub, scratch, *CODEX, "-c", f'model_providers.stub.base_url="{url}/v1"') as it,
    ):
        it.shows("Ask Codex")
        it.say_until("say hello", "■")
        it.is_judged("limit", S.LIMITED)
        assert abs((it.tmux_env.session(ME).limited_until or 0) - resets_at) < 3700
        windows = until(lambda: it.tmux_env.session(ME).limit_windows, what="the limits in its rollout")
        assert {("five_hour", 0.61, float(resets_at)), ("weekly", 0.42, resets_at + 86400.0)} == {
            (window.name, window.used, window.resets_at) for window in windows
        }
        it.kill()
        it.is_judged("killed", S.ENDED)


def test_codex_asks_plans_and_reconnects(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(codex, stub, scratch, *CODEX, "-c", "model_providers.stub.stream_max_retries=9") as it:
        it.shows("Ask Codex[^$]*GPT-5.5 default ·")
        it.is_judged("idle again", S.IDLE)
        it.press("BTab", r"Plan mode \(shift")
        it.is_judged("plan mode", S.IDLE)
        it.say("go %% ask Which colour?|red|blue %% say done")
        it.shows("enter to submit")
        it.is_judged("question", S.ASKING, "question")
        it.key("Escape")
        it.gone("enter to submit")
        it.is_judged("question left", S.IDLE)
        it.say("go %% plan 1. first step\\n2. second step")
        it.shows("enter select · esc back")
        it.is_judged("plan", S.ASKING, "plan")
        it.press("Escape", "Ask Codex")
        it.is_judged("plan sent back", S.IDLE)
        it.say("go %% drop")
        it.shows("(?i)reconnecting")
        it.is_judged("reconnects", S.WORKING)


def _claude_untrusted(agent: RealAgent) -> None:
    settings = json.loads((agent.home / ".claude.json").read_text())
    (agent.home / ".claude.json").write_text(json.dumps({**settings, "projects": {}}))


def _gemini_untrusted(agent: RealAgent) -> None:
    (agent.home / ".gemini" / "trustedFolders.json").unlink()


def _from_a_shell(
    agent: RealAgent, stub: ModelStub, scratch: Path, pattern: str, case: str, *asks: str, flags: str = ""
) -> None:
    """The agent is started in a shell, shows *pattern*, which is *case*; then it crashes to the shell."""
    stub.must_be_called = False
    with watched(agent, stub, scratch, in_shell=True) as it:
        it.shows("bash.*[$#]")
        it.type(f"{agent.program} {flags}")
        it.key("Enter")
        it.shows(pattern)
        it.is_judged(case, S.ASKING if asks else S.IDLE, *asks)
        until(lambda: any(one.source == "process" for one in it.tmux_env.session(ME).signals), LIMIT_S, "its processes")
        it.kill()
        it.shows(r"(?i)killed")
        it.is_judged("crashed to the shell", S.ENDED)


def test_claude_asks_for_trust_and_crashes_to_its_shell(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    _claude_untrusted(claude)
    _from_a_shell(claude, stub, scratch, "trust", "trust", "question")


def test_codex_crashes_to_its_shell(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    flags = "-c features.daemon_auto_start=false"
    _from_a_shell(codex, stub, scratch, "Ask Codex", "idle in a shell", flags=flags)


def test_gemini_asks_for_trust_and_crashes_to_its_shell(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    _gemini_untrusted(gemini)
    _from_a_shell(gemini, stub, scratch, "Do you trust", "trust", "question")


def test_opencode_crashes_to_its_shell(opencode: RealAgent, stub: ModelStub, scratch: Path) -> None:
    _from_a_shell(opencode, stub, scratch, "Ask anything", "idle in a shell")


def test_codex_wants_a_login(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    stub.must_be_called = False
    trusted = f'[projects."{codex.workdir}"]\ntrust_level = "trusted"\n'
    (codex.home / ".codex" / "config.toml").write_text(trusted)
    with watched(codex, stub, scratch, "-c", "features.daemon_auto_start=false", without="STUB_KEY") as it:
        it.shows("(?i)sign in")
        it.is_judged("login", S.ASKING, "auth")


def test_gemini_wants_a_login(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    stub.must_be_called = False
    (gemini.home / ".gemini" / "settings.json").write_text(json.dumps({"general": {"enableAutoUpdate": False}}))
    with watched(gemini, stub, scratch, without="GEMINI_API_KEY") as it:
        it.shows("●")
        it.is_judged("login", S.ASKING, "auth")


def test_gemini_asks_a_question_and_is_killed(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(gemini, stub, scratch) as it:
        it.shows("Type your message")
        it.say("go %% ask Which colour?|red|blue %% say done")
        it.shows("Which colour.[^$]*1\\. ")
        it.is_judged("question", S.ASKING, "question")
        it.key("Escape")
        it.shows("Type your message")
        it.is_judged("question left", S.IDLE)
        it.say("go %% write a.txt|one\\ntwo %% say done")
        it.shows("Apply this change")
        it.is_judged("change", S.ASKING, "permission")
        it.kill()
        it.is_judged("killed", S.ENDED)


def test_opencode_asks_a_question_retries_and_is_killed(opencode: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(opencode, stub, scratch) as it:
        it.shows("Ask anything")
        it.say("go %% ask Which colour?|red|blue %% say done")
        it.shows("Type your own")
        it.is_judged("question", S.ASKING, "question")
        it.key("Escape")
        it.gone("Type your own")
        it.is_judged("question left", S.IDLE)
        it.say("go %% fail 529 9 %% say recovered")
        it.shows("(?i)retrying|attempt")
        it.is_judged("retries", S.WORKING)
        it.kill()
        it.is_judged("killed", S.ENDED)
