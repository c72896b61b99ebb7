"""Opens the user's own `claude`, performs the handshake, and checks that it has the requested conversation."""

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.claude.handshake import ClaudeLaunch, build_introduction, check, explain_failure, plan_launch
from kasmon.backends.claude.history import conversation_of
from kasmon.backends.claude.settings import ClaudeSettings
from kasmon.backends.claude.translator import ClaudeTranslator
from kasmon.backends.claude.usage import ClaudeUsage
from kasmon.backends.common import agent_start
from kasmon.backends.common.agent_version import explain_unfit
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.errors import LaunchError, UnfitAgentError
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
        hears_reasons=True,
        steers=True,
        sets_model=True,
        sets_permission_mode=True,
        resumes=True,
        interrupts=True,
    )

    async def open(self, launch: Launch, /) -> Agent:
        """Start `launch.argv`; resume the conversation `launch.resume` if there is one.

        Raises:
            ExtraMissingError: if the SDK is not installed.
            LaunchError: if claude cannot be started, does not introduce itself in time, has no login, is too old, or
                has another conversation.
        """
        began, limit_s = time.time(), agent_start.limit_s(launch)
        plan = await asyncio.to_thread(plan_launch, launch)
        environment = AgentEnvironment(plan.variables, plan.secrets)
        child = await (await agent_start.prepare_start(launch, plan.argv, environment)).run()
        settings = ClaudeSettings(plan.conversation, may_bypass=launch.bypassing)
        translator = ClaudeTranslator(launch.session, settings, ClaudeUsage(launch.used, plan.carried))
        agent: ClaudeAgent | None = None
        try:
            await agent_start.wait_for_start(launch, child.pid)
            async with asyncio.timeout(limit_s):
                # while the process starts; the SDK takes as long to load
                module = await asyncio.to_thread(import_module, "kasmon.backends.claude.agent")
                agent = module.ClaudeAgent(launch, child, translator)
                await self._introduce(agent, launch, plan, child, translator.settings, began)
        except BaseException as error:
            await (child.end() if agent is None else agent.aclose())
            if isinstance(error, LaunchError) or not isinstance(error, Exception):
                raise
            why = explain_failure(error, plan, child, translator.turns.failure, limit_s)
            why.__cause__ = error
            if isinstance(why, UnfitAgentError):
                why = await explain_unfit(why, self.name, plan.argv, launch.workdir, plan.variables)
            raise why from error
        return agent

    async def _introduce(
        self,
        agent: "ClaudeAgent",
        launch: Launch,
        plan: ClaudeLaunch,
        child: ChildProcess,
        settings: ClaudeSettings,
        at: float,
    ) -> None:
        answer = await agent.connect()
        conversation = await asyncio.to_thread(_conversation, launch, plan.config, child.pid)
        check(launch, plan, answer, conversation)
        settings.conversation = conversation or settings.conversation
        agent.begin(*build_introduction(launch, plan, settings, answer, child.pid, at))


def _conversation(launch: Launch, config: Path, pid: int) -> str:
    """Return the id of the process's conversation; empty if unknown."""
    if launch.sandbox is None:
        return conversation_of(config, pid)
    from kasmon.sandbox.agent.identify import find_agent
    from kasmon.sandbox.shared.processes import name_inside

    agent = find_agent(pid)
    name = name_inside(agent) if agent is not None else ""
    return conversation_of(config, int(name)) if name else ""


backend = ClaudeBackend()
