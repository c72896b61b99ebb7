"""Opens agents of the Agent Client Protocol; imports the SDK with the first of them."""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from kasmon.backends.acp import gemini_quirks
from kasmon.backends.acp.known_agents import Quirk, known
from kasmon.backends.base import Abilities, Agent
from kasmon.backends.common.agent_version import explained
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment, surroundings
from kasmon.backends.project_trust import check
from kasmon.errors import ExtraMissingError, LaunchError, UnfitAgentError
from kasmon.model.commands import Launch
from kasmon.paths import places

SDK: Final = "acp"


class AcpBackend:
    """Any agent whose command, `launch.argv`, speaks ACP on its stdio."""

    name = "acp"
    abilities = Abilities(
        streams=True,
        asks=True,
        cancels=True,
        sets_model=True,
        sets_permission_mode=True,
        resumes=True,
        interrupts=True,
    )

    async def open(self, launch: Launch, /) -> Agent:
        """Start the agent and open a conversation, or resume `launch.resume`.

        Raises:
            ExtraMissingError: if the SDK is not installed.
            LaunchError: if the agent does not start or introduce itself, requires a log-in, or does not know the
                conversation.
            UntrustedFolderError: if it would load what the user has not trusted.
        """
        if find_spec(SDK) is None:
            raise ExtraMissingError(self.name, "acp")
        if not launch.argv:
            raise LaunchError("the agent's profile has no program.", hint="Set `program` in its profile.")
        agent = known(launch.argv)
        environment = await asyncio.to_thread(surroundings, launch, agent.own)
        environment = AgentEnvironment({**agent.variables, **environment.variables}, environment.secrets)
        await asyncio.to_thread(check, self.name, launch.argv, launch.workdir, environment.variables)
        argv, variables = launch.argv, environment.variables
        if launch.sandbox is not None:
            from kasmon.sandbox.agent.launch import prepare_launch

            inmate = await asyncio.to_thread(prepare_launch, places(), launch, argv, variables)
            there = {**variables, "HOME": str(inmate.home), "GEMINI_CLI_HOME": ""}  # the home with its conversations
            argv, variables, environment = (
                inmate.command,
                {},
                AgentEnvironment(there, (*environment.secrets, *inmate.secrets)),
            )
        if launch.resume and Quirk.TWIN_FILES in agent.habits:
            await asyncio.to_thread(gemini_quirks.remove_twins, launch.resume, environment.variables)
        child = await ChildProcess.start(
            argv, workdir=launch.workdir, environment=variables, secrets=environment.secrets
        )
        try:
            module = await asyncio.to_thread(import_module, "kasmon.backends.acp.agent")  # takes half a second
            live = module.AcpAgent(launch, agent, child, environment)
        except BaseException:
            await child.end()
            raise
        try:
            await live.introduce()
        except UnfitAgentError as error:
            raise await explained(error, self.name, launch.argv, launch.workdir, environment.variables) from error
        opened: Agent = live
        return opened


backend = AcpBackend()
