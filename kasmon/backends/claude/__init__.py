"""Claude Code as a structured agent: the user's own `claude`, controlled over claude-agent-sdk.

A claude in a terminal is read by `kasmon/backends/tmux/`: `evidence/screen_requests.py` turns its menus into requests.

| module | purpose |
|---|---|
| `handshake` | opening: what is started, what the agent must report first |
| `command_line` `history` | the command line and environment; the agent's transcripts on disk |
| `agent` `transport` | the running agent: the SDK, the process's lines |
| `translator` | messages to events, by `turns` `content` `usage` `settings` `notices` |
| `open_requests` `request_builder` | what the agent waits for, as requests and replies |
| `tool_text` `diff` | tools: titles, outputs, diffs |
| `messages` | the lines of its stdout, and the names of its messages |

Only `agent` and `transport` import the SDK, and only once an agent is opened.
"""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.claude.handshake import plan_launch
from kasmon.backends.common import agent_start
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.backends.common.structured_agent import open_agent
from kasmon.errors import ExtraMissingError
from kasmon.model.commands import Launch

if TYPE_CHECKING:
    from kasmon.backends.claude.agent import ClaudeAgent


class ClaudeBackend:
    """Talks to Claude Code over its own protocol."""

    name = "claude"
    abilities = Abilities(
        streams=True,
        asks=True,
        edits_input=True,
        cancels=True,
        receives_reasons=True,
        steers=True,
        sets_model=True,
        sets_permission_mode=True,
        receives_images=True,
        resumes=True,
        interrupts=True,
        forks=True,
    )

    async def open(self, launch: Launch, /) -> Agent:
        """Start `launch.argv`; resume the conversation `launch.resume` if there is one.

        Raises:
            ExtraMissingError: if the SDK is not installed.
            LaunchError: if claude cannot be started, does not introduce itself in time, has no login, is too old, or
                has another conversation.
        """
        plan = await asyncio.to_thread(plan_launch, launch)
        environment = AgentEnvironment(plan.variables, plan.secrets)
        child = await (await agent_start.prepare_start(launch, plan.argv, environment)).run()

        async def create() -> "ClaudeAgent":
            try:  # while the process starts; the SDK takes as long to load
                module = await asyncio.to_thread(import_module, "kasmon.backends.claude.agent")
            except ImportError as error:
                raise ExtraMissingError(self.name, "claude") from error
            agent: ClaudeAgent = module.ClaudeAgent(launch, child, plan)
            return agent

        return await open_agent(launch, child, create, backend=self.name, argv=plan.argv, variables=plan.variables)


backend = ClaudeBackend()
