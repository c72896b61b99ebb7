"""Who may answer, end to end: the real command, run from kasmon's own tmux and from a person's."""

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kasmon.model.events import RequestAnswered, SessionCreated
from kasmon.model.permission import Request
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from tests.host.terminal.test_screen_answers import ME, asked, asking
from tests.support.agents.menu_agent import YES, dialog
from tests.support.host.tmux_env import TmuxEnv, sh
from tests.support.wait import auntil

pytestmark = pytest.mark.story

BARE = "env -u KASMON_SESSION -u KASMON_RUN -u KASMON_HOST -u TMUX -u TMUX_PANE"
WAYS = {
    "as it is": "{answer}",
    "without its variables": f"{BARE} {{answer}}",
    "with an empty environment": "env -i {answer}",
    "in a session of its own": f"{BARE} setsid {{answer}}",
    "after a double fork": f"({BARE} {{answer}} &)",
    "after a double fork, in a session of its own": "setsid -f {answer}",
}
"""How an agent's script runs the answer; what SECURITY.md says can get through is not among them."""


def answering(tmux: TmuxEnv, request: Request, told: Path) -> str:
    """A shell's line that allows *request* and writes to *told* how that went; its session is in the fleet then."""
    EventLog(tmux.paths.fleet_log).append(SessionCreated(at=1.0, launch=tmux.wanted(ME)))
    xdg = " ".join(f"{name}={value}" for name, value in tmux.environment.items() if name.startswith("XDG_"))
    words = [sys.executable, "-P", "-m", "kasmon", "answer", request.id, "allow", "--digest", request.digest]
    script = f"{xdg} {shlex.join(words)} > {told}.new 2>&1; echo exit $? >> {told}.new; mv {told}.new {told}"
    return f"sh -c {shlex.quote(script)}"


async def ran(told: Path) -> str:
    await auntil(told.exists, 60, "the answer's end")
    return told.read_text()


@pytest.mark.timeout(180)
async def test_no_job_of_kasmons_tmux_server_and_no_other_session_can_answer() -> None:
    async with asking(dialog("git push")) as (tmux, link, asker):
        request = await asked(tmux)
        for number, (what, way) in enumerate(WAYS.items()):
            job, pane = tmux.root / f"job{number}", tmux.root / f"pane{number}"
            line = way.format(answer=answering(tmux, request, job))
            await asyncio.to_thread(tmux.server.run, "run-shell", "-b", line.replace("#", "##"))
            other = f"other{'abcdefgh'[number]}"
            script = f"{way.format(answer=answering(tmux, request, pane))}; exec sleep 600"
            await tmux.run(link, other, *sh(script), agent="shell")
            for told in (job, pane):
                assert "an agent cannot answer requests" in await ran(told), what
                assert "exit 4" in told.read_text()

        assert [] == asker.heard()
        assert [] == tmux.only(RequestAnswered, ME)


async def test_a_user_in_their_own_tmux_answers() -> None:
    async with asking(dialog("git push")) as (tmux, _, asker):
        request = await asked(tmux)
        command_line = [tmux.server.program, "-f", "/dev/null", "-S", str(tmux.root / "mine")]
        variables = {name: value for name, value in tmux.environment.items() if not name.startswith("XDG_")}
        told = tmux.root / "told"
        try:
            command = [*command_line, "new-session", "-d", answering(tmux, request, told)]
            await asyncio.to_thread(subprocess.run, command, env=variables, check=True)

            assert "exit 0" in await ran(told)
            await tmux.until_state(ME, SessionState.IDLE)
            assert ("git push", YES) == asker.taken()[-1]
        finally:
            subprocess.run([*command_line, "kill-server"], check=False, capture_output=True)
