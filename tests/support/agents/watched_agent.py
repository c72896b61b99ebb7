"""One agent in tmux, watched by a tmux host: what its screen shows, and what kasmon says of it.

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

from kasmon.backends.common.environment import encoded
from kasmon.host.rpc.frames import StartSession
from kasmon.model.permission import SessionId
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from tests.support.agents.real_agent import ROOT, RealAgent, pinned_version
from tests.support.host.tmux_env import TmuxEnv
from tests.support.model_stub import ModelStub
from tests.support.wait import until

ME: Final = SessionId("abcdefgh")
FOUND: Final = ROOT / ".cache" / "evidence"
LIMIT_S: Final = 90.0
"""A net under an agent that hangs, no expectation."""
STILL_LOOKS: Final = 20
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

    def is_still(self) -> None:
        """Wait until the screen looks the same a few times in a row; a spinner does not count."""
        seen: list[str] = []

        def same() -> bool:
            seen.append(re.sub(r"[⠁-⣿\d]", "", self.screen()))
            return len(seen) > STILL_LOOKS and len(set(seen[-STILL_LOOKS:])) == 1

        until(same, LIMIT_S, "a screen that stands still")

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
        write_private(tmux.paths.environment(launch.session), encoded(variables))
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
