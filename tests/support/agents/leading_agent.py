"""A session whose agent runs commands for a test: `acting_agent` as a profile of its own."""

import json
import subprocess
import sys
from typing import Any

from tests.support.agents import acting_agent
from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.cli.fork_server import KASMON
from tests.support.wait import until

FRAME = """
import asyncio
from kasmon.errors import KasmonError
from kasmon.host.rpc.connect import reach
from kasmon.host.rpc.frames import ProposeFinish, RecordPeerMessage
from kasmon.model.commands import ActingAgent
from kasmon.model.events import PeerMessageWritten
from kasmon.paths import user_paths
from kasmon.supervisor.fleet.snapshot import read_fleet

async def ask(session):
    async with reach(user_paths(), session.id, session.mode) as host:
        await host.ask({frame})

try:
    asyncio.run(ask(read_fleet(user_paths()).require({session!r})))
    print("it was logged")
except KasmonError as error:
    print(error.message)
"""
"""A program that sends *frame* to the host of *session*, past all tools and commands, and prints its answer."""


def start_lead(kasmon: Cli, name: str = acting_agent.PROFILE, *more: str) -> "LeadingAgent":
    """Start the session *name* of *kasmon*, with *more* options of `kasmon new`, and return its agent."""
    write_profile(kasmon)
    done = kasmon("new", name, "--agent", acting_agent.PROFILE, *more)
    assert 0 == done.code, done.err
    return LeadingAgent(kasmon, done.out.strip())


def write_profile(kasmon: Cli, *lines: str) -> None:
    """Write the agent's profile, with *lines* in its table, into the config of *kasmon*, unless it is there."""
    program, config = kasmon.home / acting_agent.PROFILE, kasmon.paths.config_file
    (kasmon.home / "k").mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {acting_agent.__file__} {kasmon.home / 'k'}\n")
    program.chmod(0o755)
    config.parent.mkdir(parents=True, exist_ok=True)
    before = config.read_text() if config.exists() else ""
    if f"[agents.{acting_agent.PROFILE}]" not in before:
        table = "\n".join((f"[agents.{acting_agent.PROFILE}]", f'program = "{program}"', *lines))
        config.write_text(f"{before}\n{table}\n")


class LeadingAgent:
    """The agent of a session of *kasmon*, as soon as it listens."""

    def __init__(self, kasmon: Cli, session: str) -> None:
        self.session = session
        self._path = kasmon.home / "k" / session
        until(self._path.exists, LIMIT_S)

    def relay(self, *argv: str, merged: bool = False, **variables: str) -> list[str]:
        """Return the command line that has the agent run *argv* with that command's own stdin and stdout."""
        command = json.dumps({"argv": argv, "env": variables, "all": merged})
        return [sys.executable, acting_agent.__file__, "--relay", str(self._path), command]

    def run(self, *argv: str, **variables: str) -> str:
        """Return what *argv* prints, run as a child of the agent."""
        command = self.relay(*argv, merged=True, **variables)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def kasmon(self, *arguments: str, **variables: str) -> str:
        """Return what `kasmon ARGUMENTS` prints, run by the agent."""
        return self.run(*KASMON, *arguments, **variables)

    def ask_host(self, session: str, frame: str) -> str:
        """Return what `FRAME` prints, run by the agent."""
        return self.run(sys.executable, "-P", "-c", FRAME.format(session=session, frame=frame))

    def json(self, *arguments: str, **variables: str) -> Any:
        """Return the object that `kasmon ARGUMENTS --json` prints, run by the agent."""
        return json.loads(self.kasmon(*arguments, "--json", **variables))
