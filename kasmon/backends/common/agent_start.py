"""Start an agent's process, in its sandbox if it has one; the timeout of its handshake, and when that begins.

A sandboxed agent has to be started inside first: a virtual machine is started or copied, its files are copied in, and
missing programs are installed. That takes up to minutes and does not count against the agent.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.errors import KasmonError
from kasmon.model.commands import Launch
from kasmon.paths import Paths, user_paths

HANDSHAKE_S: Final = 45.0
"""How long an agent may take to open a conversation, in seconds. Each takes more than 10 at times: claude on a busy
machine, opencode at its first start, and codex with MCP servers."""
EMULATED_S: Final = 60.0
"""Additional time if the virtual machine runs without hardware acceleration, in seconds."""


class AgentStart(NamedTuple):
    """What is started: the agent's own command, or the one that creates its sandbox around it."""

    argv: Sequence[str]
    workdir: str
    variables: Mapping[str, str]
    secrets: tuple[str, ...]
    home: str = ""
    """The folder that is the agent's home in its sandbox; empty without a sandbox."""

    async def run(self) -> ChildProcess:
        return await ChildProcess.start(
            self.argv, workdir=self.workdir, environment=self.variables, secrets=self.secrets
        )


async def prepare_start(launch: Launch, argv: Sequence[str], environment: AgentEnvironment) -> AgentStart:
    """Return the start of *argv* with *environment*, in the sandbox of *launch* if it names one."""
    if launch.sandbox is None:
        return AgentStart(argv, launch.workdir, environment.variables, environment.secrets)
    from kasmon.sandbox.agent.launch import prepare_launch  # imported late: only for a sandbox

    guest_start = await asyncio.to_thread(prepare_launch, user_paths(), launch, argv, environment.variables)
    secrets = (*environment.secrets, *guest_start.secrets)
    return AgentStart(guest_start.command, launch.workdir, {}, secrets, str(guest_start.home))


def limit_s(launch: Launch) -> float:
    """Return the handshake limit for the agent of *launch*: the configured one or `HANDSHAKE_S`, more in a microvm."""
    if launch.handshake_s is not None:
        return launch.handshake_s
    return HANDSHAKE_S + (EMULATED_S if launch.sandbox == "microvm" else 0.0)


async def wait_for_start(launch: Launch, front: int, where: Paths | None = None) -> None:
    """Return once the agent behind process *front* runs, if its sandbox has to start first; or once *front* ended.

    *where*: the kasmon folders that it belongs to, by default those of the environment.
    """
    if launch.sandbox not in (None, "jail"):
        from kasmon.sandbox.agent.identify import wait_for_agent  # imported late: only for a sandbox

        with contextlib.suppress(KasmonError):
            await asyncio.to_thread(wait_for_agent, where or user_paths(), launch.session, front)
