"""The real agents in tmux, state by state: what kasmon says of them is right, or it says that it is not sure.

What was judged is written to `.cache/evidence/<agent>.json`; `tests.support.detection.confusion_matrix` makes a table.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil
import pytest

from kasmon.backends.common.environment import encoded
from kasmon.host.rpc.frames import StartSession
from kasmon.model.permission import SessionId
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from tests.support.agents.full_stack import beside
from tests.support.agents.real_agent import ROOT, RealAgent, pinned_version
from tests.support.detection.scenes.studio import refusing
from tests.support.host.tmux_env import TmuxEnv
from tests.support.model_stub import ModelStub
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]
stub = pytest.fixture(beside)
ME: Final = SessionId("abcdefgh")
FOUND: Final = ROOT / ".cache" / "evidence"
LIMIT_S: Final = 90.0
"""A net under an agent that hangs, no expectation."""
CODEX: Final = ("-c", "features.daemon_auto_start=false", "-a", "on-request", "--sandbox", "workspace-write")
S = SessionState


class Watched:
    """One agent in tmux, watched by a tmux host in this process."""

    def __init__(self, tmux: TmuxEnv, agent: RealAgent, stub: ModelStub) -> None:
        self.tmux_env, self.agent, self.stub = tmux, agent, stub

    def screen(self) -> str:
        return self.tmux_env.server.run("capture-pane", "-p", "-t", f"={ME}:").decode()

    def shows(self, pattern: str) -> None:
        until(lambda: re.search(pattern, self.screen(), re.MULTILINE), LIMIT_S, pattern)

    def gone(self, pattern: str) -> None:
        until(lambda: not re.search(pattern, self.screen(), re.MULTILINE), LIMIT_S, f"no {pattern}")

    def key(self, *names: str) -> None:
        self.tmux_env.server.run("send-keys", "-t", f"={ME}:", *names)

    def type(self, text: str) -> None:
        self.tmux_env.server.run("send-keys", "-l", "-t", f"={ME}:", "--", text)

    def say(self, text: str) -> None:
        """Type a prompt, see it stand there, and press Enter until the model is asked."""
        self.type(text)
        self.shows(re.escape(text[-12:]))
        before = len(self.stub.requests)
        for _ in range(5):
            self.key("Enter")
            with contextlib.suppress(TimeoutError):
                until(lambda: len(self.stub.requests) > before, 5.0)
                return
        raise TimeoutError(f"{text!r} was never taken")

    def say_until(self, text: str, pattern: str) -> None:
        """Type a prompt and press Enter until *pattern* stands there: a model server of its own hears it."""
        self.type(text)
        self.shows(re.escape(text[-12:]))
        self.press("Enter", pattern)

    def press(self, key: str, pattern: str, *, gone: bool = False) -> None:
        """Press *key* until *pattern* stands there, or is *gone*: what is new hears nothing at first."""
        for _ in range(5):
            self.key(key)
            with contextlib.suppress(TimeoutError):
                until(lambda: bool(re.search(pattern, self.screen(), re.MULTILINE)) is not gone, 8.0)
                return
        raise TimeoutError(f"{key!r} was never taken: no {pattern!r}")

    def kill(self) -> None:
        """End the agent and all that it started as a crash does; a shell that it was started from stays."""
        root = self.tmux_env.session(ME).pid
        assert root is not None
        family = psutil.Process(root).children(recursive=True)
        for pid in [one.pid for one in family] or [root]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def is_judged(self, case: str, wanted: SessionState, asking: str | None = None) -> None:
        """The judged state becomes *wanted*; what it was is kept either way."""
        try:
            until(lambda: self._is(wanted, asking), LIMIT_S, f"{case}: {wanted}")
        finally:
            now = self.tmux_env.session(ME)
            now = now if now.state in (S.ENDED, S.LOST) else apply_verdict(now, time.time())
            read = str(now.state)
            self._keep({"case": case, "expected": str(wanted), "judged": read, "source": now.source})
            if not self._is(wanted, asking):
                print(case, now.state, now.source, now.unsure_why, *now.signals, self.screen(), sep="\n")

    def _keep(self, result: dict[str, str]) -> None:
        """Add *result* to the file of this agent; one that was wrong stays, until its test has to pass again, alone."""
        file = FOUND / f"{self.agent.name}.json"
        FOUND.mkdir(parents=True, exist_ok=True)
        known = json.loads(file.read_text())["cases"] if file.exists() else []
        cases = {one["case"]: one for one in known}
        before = cases.get(result["case"])
        if before is None or before["expected"] == before["judged"] or os.environ.get("KASMON_EVIDENCE") == "anew":
            cases[result["case"]] = result
        found = {"agent": self.agent.name, "version": pinned_version(self.agent.name), "cases": [*cases.values()]}
        file.write_text(json.dumps(found, indent=1))

    def _is(self, wanted: SessionState, asking: str | None) -> bool:
        session = self.tmux_env.session(ME)
        return session.state is wanted and (asking is None or session.asking == asking)

    def is_asked(self, pattern: str, *choices: str) -> None:
        """A request stands there whose text holds *pattern*, with *choices*."""
        request = until(
            lambda: next((a for a in self.tmux_env.session(ME).requests if re.search(pattern, a.shown)), None),
            LIMIT_S,
            pattern,
        )
        assert request.answerable
        assert set(choices) <= set(request.choices), request


@contextlib.contextmanager
def watched(
    agent: RealAgent,
    stub: ModelStub,
    root: Path,
    *flags: str,
    own: Mapping[str, str] | None = None,
    without: str = "",
    in_shell: bool = False,
) -> Iterator[Watched]:
    """The *agent* with *flags*, further variables *own*, and *without* one; *in_shell* a shell to start it from."""
    (root / "k").mkdir()
    tmux = TmuxEnv(root / "k")
    argv = ("bash", "--norc", "--noprofile") if in_shell else (str(agent.program), *flags)
    variables = {**agent.own, "GEMINI_CLI_NO_RELAUNCH": "true", **(own or {})}
    variables.pop(without, None)
    try:
        launch = tmux.wants(ME, *argv, agent=agent.name, workdir=str(agent.workdir))
        write_private(tmux.places.environment(launch.session), encoded(variables))
        tmux.open()
        asyncio.run(_start(tmux))
        it = Watched(tmux, agent, stub)
        try:
            yield it
        except TimeoutError:
            print(it.screen())
            raise
    finally:
        tmux.close()


async def _start(tmux: TmuxEnv) -> None:
    async with tmux.client() as link:
        await link.ask(StartSession(n=0, session=ME), limit_s=40)


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
    """Its own report is "error" only; idle would be wrong."""
    stub.must_be_called = False
    resets_at = int(time.time()) + 2 * 3600
    body = json.dumps({"error": {**LIMITED_CODEX, "resets_at": resets_at}})
    with (
        refusing(429, body, {"content-type": "application/json"}) as url,
        watched(codex, stub, scratch, *CODEX, "-c", f'model_providers.stub.base_url="{url}/v1"') as it,
    ):
        it.shows("Ask Codex")
        it.say_until("say hello", "■")
        it.is_judged("limit", S.LIMITED)
        assert abs((it.tmux_env.session(ME).limited_until or 0) - resets_at) < 3700
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
