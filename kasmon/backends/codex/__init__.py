"""Codex through its own app-server: JSON-RPC over a socket or its stdin; nothing is approved without an answer.

| module | purpose |
|---|---|
| `program_path` `cli_flags` `thread_start` | opening: the program, its settings, the conversation |
| `agent` `transport` | the running agent: its messages and commands, its connection |
| `shared_server` `web_socket` | an app-server with a socket, where codex's own screen can join the conversation |
| `translator` | messages to events, by `item_tracker` `items` `diff` `usage` `settings` `notices` |
| `request_registry` `request` `approvals` `questions` | what it waits for, as requests and replies |
"""

import asyncio
from pathlib import Path

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.codex import program_path
from kasmon.backends.codex.agent import CodexAgent
from kasmon.backends.codex.cli_flags import parse_flags
from kasmon.backends.codex.shared_server import start_server
from kasmon.backends.common import agent_start
from kasmon.backends.common.environment import build_environment, own_prefixes
from kasmon.backends.common.structured_agent import open_agent
from kasmon.errors import LaunchError
from kasmon.model.commands import Launch
from kasmon.paths import user_paths


class CodexBackend:
    name = "codex"
    abilities = Abilities(
        streams=True,
        asks=True,
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
        """Start codex; resume the conversation `launch.resume` if set. `launch.argv` is `codex` and its own flags.

        Without a sandbox it listens on a socket, if it can, so that its own screen can show the same conversation.

        Raises:
            LaunchError: if it cannot be started, is not logged in, or does not answer; the message names the fix.
        """
        if not launch.argv:
            raise LaunchError(
                "cannot start codex: its profile has no program.", hint="Set the agent's `program` in the config."
            )
        flags = parse_flags(launch.argv[1:], launch.model)
        prefixes = await asyncio.to_thread(own_prefixes, ("codex",))
        environment = await asyncio.to_thread(build_environment, launch, prefixes)
        path = await asyncio.to_thread(program_path.find_program, launch.agent, launch.argv[0], environment.variables)
        start = await agent_start.prepare_start(launch, (path, "app-server", *flags.arguments), environment)
        server = None
        if launch.sandbox is None:
            server = await start_server(start, await asyncio.to_thread(_find_socket, launch))
        child = await start.run() if server is None else server.child

        async def create() -> CodexAgent:
            return CodexAgent(launch, child, path, flags.thread, start.secrets, server)

        variables = environment.variables
        return await open_agent(launch, child, create, backend=self.name, argv=(path,), variables=variables)


def _find_socket(launch: Launch) -> Path:
    """Return where the server of *launch* listens; the folder exists. Blocks."""
    where = user_paths()
    where.make()
    return where.shared_server(launch.session)


backend = CodexBackend()
