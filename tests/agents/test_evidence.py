"""The real agents in tmux, state by state: what kasmon says of them is right, or it says that it is not sure.

What was judged is written to `.cache/evidence/<agent>.json`, from which the README's table of live runs is made.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kasmon.backends.surroundings import encoded
from kasmon.host.wire import Start
from kasmon.model.permission import SessionId
from kasmon.model.session import judged
from kasmon.model.state import SessionState
from kasmon.paths import write_private
from tests.agents.real import ROOT, RealAgent, pinned_version
from tests.agents.stack import beside
from tests.host.inn import Inn
from tests.modelstub import ModelStub
from tests.waiting import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(240)]
stub = pytest.fixture(beside)
ME: Final = SessionId("abcdefgh")
FOUND: Final = ROOT / ".cache" / "evidence"
LIMIT_S: Final = 30.0
"""A net under an agent that hangs, no expectation."""
S = SessionState


class Watched:
    """One agent in tmux, watched by a tmux host in this process."""

    def __init__(self, inn: Inn, agent: RealAgent, stub: ModelStub) -> None:
        self.inn, self.agent, self.stub = inn, agent, stub
        self.results: list[dict[str, str]] = []

    def screen(self) -> str:
        return self.inn.server.run("capture-pane", "-p", "-t", f"={ME}:").decode()

    def shows(self, pattern: str) -> None:
        until(lambda: re.search(pattern, self.screen(), re.MULTILINE), LIMIT_S, pattern)

    def gone(self, pattern: str) -> None:
        until(lambda: not re.search(pattern, self.screen(), re.MULTILINE), LIMIT_S, f"no {pattern}")

    def key(self, *names: str) -> None:
        self.inn.server.run("send-keys", "-t", f"={ME}:", *names)

    def type(self, text: str) -> None:
        self.inn.server.run("send-keys", "-l", "-t", f"={ME}:", "--", text)

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

    def is_judged(self, case: str, wanted: SessionState, asking: str | None = None) -> None:
        """The judged state becomes *wanted*; what it was is kept either way."""
        try:
            until(lambda: self._is(wanted, asking), LIMIT_S, f"{case}: {wanted}")
        finally:
            now = judged(self.inn.session(ME), time.time())
            read = str(now.state)
            self.results.append({"case": case, "expected": str(wanted), "judged": read, "source": now.source})
            FOUND.mkdir(parents=True, exist_ok=True)
            found = {"agent": self.agent.name, "version": pinned_version(self.agent.name), "cases": self.results}
            (FOUND / f"{self.agent.name}.json").write_text(json.dumps(found, indent=1))
            if not self._is(wanted, asking):
                print(case, now.state, now.source, now.unsure_why, *now.signals, self.screen(), sep="\n")

    def _is(self, wanted: SessionState, asking: str | None) -> bool:
        session = self.inn.session(ME)
        return session.state is wanted and (asking is None or session.asking == asking)

    def is_asked(self, pattern: str, *choices: str) -> None:
        """A request stands there whose text holds *pattern*, with *choices*."""
        request = until(
            lambda: next((a for a in self.inn.session(ME).asks if re.search(pattern, a.shown)), None), LIMIT_S, pattern
        )
        assert set(choices) <= set(request.choices), request


@contextlib.contextmanager
def watched(agent: RealAgent, stub: ModelStub, root: Path, *flags: str) -> Iterator[Watched]:
    (root / "k").mkdir()
    inn = Inn(root / "k")
    try:
        launch = inn.wants(ME, str(agent.program), *flags, agent=agent.name, workdir=str(agent.workdir))
        write_private(inn.places.environment(launch.session), encoded({**agent.own, "GEMINI_CLI_NO_RELAUNCH": "true"}))
        inn.open()
        asyncio.run(_start(inn))
        yield Watched(inn, agent, stub)
    finally:
        inn.close()


async def _start(inn: Inn) -> None:
    async with inn.client() as link:
        await link.ask(Start(n=0, session=ME), limit_s=20)


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
        assert [] == list(it.inn.session(ME).asks)
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
        sources = {signal.source for signal in it.inn.session(ME).signals}
        assert {"registry", "hook", "title", "screen"} <= sources


def test_codex(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(
        codex,
        stub,
        scratch,
        "-c",
        "features.daemon_auto_start=false",
        "-a",
        "on-request",
        "--sandbox",
        "workspace-write",
    ) as it:
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
