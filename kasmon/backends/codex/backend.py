"""Starts `codex app-server` and opens the requested conversation."""

import asyncio
from typing import Final

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.codex import program_path
from kasmon.backends.codex.agent import CodexAgent
from kasmon.backends.codex.cli_flags import parse_flags
from kasmon.backends.common import agent_start
from kasmon.backends.common.agent_version import explain_unfit
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import OWN, build_environment
from kasmon.backends.common.json_access import Table
from kasmon.errors import LaunchError, SessionEndedError, UnfitAgentError
from kasmon.model.commands import Launch

BACKTRACE: Final = "Stack backtrace:"
NO_SERVER: Final = ("unrecognized subcommand", "unexpected argument", "No such command")
"""What a program prints that has no app-server."""


class CodexBackend:
    name = "codex"
    abilities = Abilities(
        streams=True,
        asks=True,
        cancels=True,
        hears_reasons=True,
        steers=True,
        sets_model=True,
        sets_permission_mode=True,
        resumes=True,
        interrupts=True,
    )

    async def open(self, launch: Launch, /) -> Agent:
        """Start codex; resume the conversation `launch.resume` if set. `launch.argv` is `codex` and its own flags.

        Raises:
            LaunchError: if it cannot be started, is not logged in, or does not answer; the message names the fix.
        """
        if not launch.argv:
            raise LaunchError(
                "cannot start codex: its profile has no program.", hint="Set the agent's `program` in the config."
            )
        asked = parse_flags(launch.argv[1:], launch.model)
        there = await asyncio.to_thread(build_environment, launch, OWN["codex"])
        path = await asyncio.to_thread(program_path.find_program, launch.agent, launch.argv[0], there.variables)
        start = await agent_start.prepare_start(launch, (path, "app-server", *asked.arguments), there)
        child = await start.run()
        agent = CodexAgent(launch, child, start.secrets)
        try:
            await _begin_agent(agent, asked.thread, launch, path, child)
        except UnfitAgentError as error:
            raise await explain_unfit(error, self.name, (path,), launch.workdir, there.variables) from error
        return agent


async def _begin_agent(agent: CodexAgent, thread: Table, launch: Launch, path: str, child: ChildProcess) -> None:
    """Begin *agent*; end it if that fails.

    Raises:
        LaunchError: with the reason.
    """
    failure: TimeoutError | SessionEndedError
    limit_s = agent_start.limit_s(launch)
    try:
        await agent_start.wait_for_start(launch, child.pid)
        async with asyncio.timeout(limit_s):
            await agent.begin(thread)
        return
    except TimeoutError as error:
        why, failure = f"did not open a conversation within {limit_s:g} s", error
    except SessionEndedError as error:
        why, failure = "ended before it had opened a conversation", error
    finally:
        if not agent.has_begun:
            await agent.aclose()
    raise _not_opened(path, why, child) from failure


def _not_opened(path: str, why: str, child: ChildProcess) -> LaunchError:
    """Return why the program at *path* failed, with its last output and a hint."""
    said = child.last_words.partition(BACKTRACE)[0]
    words = "; ".join(line.strip() for line in said.splitlines() if line.strip()).rstrip(".")
    ended = f"exit code {child.exit_code}" if child.exit_code is not None else child.signal
    how = f" ({ended})" if why.startswith("ended") and ended else ""
    is_other = not words or any(sign in words for sign in NO_SERVER)
    what, started = f"codex {why}{how}{f': {words}' if words else ''}.", f"The program was {path!r}."
    if is_other:
        return UnfitAgentError(what, hint=f"kasmon requires a codex with `codex app-server`. {started}")
    return LaunchError(what, hint=f"Check the profile's flags and config. {started}")


backend = CodexBackend()
