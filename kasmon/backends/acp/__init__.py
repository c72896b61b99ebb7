"""Any agent that speaks the Agent Client Protocol on its stdio: opencode, gemini, or one named by a profile."""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kasmon.agents.catalog import find
from kasmon.agents.profile import Quirk
from kasmon.backends.acp import gemini_quirks
from kasmon.backends.base import Abilities, Agent
from kasmon.backends.common.agent_start import prepare_start
from kasmon.backends.common.environment import AgentEnvironment, build_environment, own_prefixes, program_of
from kasmon.backends.common.structured_agent import open_agent
from kasmon.backends.project_trust import check
from kasmon.errors import ExtraMissingError, LaunchError
from kasmon.model.commands import Launch

if TYPE_CHECKING:
    from kasmon.backends.acp.agent import AcpAgent

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
        receives_images=True,
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
        agent = await asyncio.to_thread(lambda: find(program_of(launch.argv)))  # reads folders of agents
        environment = await asyncio.to_thread(build_environment, launch, own_prefixes(launch.argv))
        environment = AgentEnvironment({**agent.variables.structured, **environment.variables}, environment.secrets)
        await asyncio.to_thread(check, self.name, launch.argv, launch.workdir, environment.variables)
        start = await prepare_start(launch, launch.argv, environment)
        home = {"HOME": start.home, "GEMINI_CLI_HOME": ""} if start.home else {}  # where its conversations are
        environment = AgentEnvironment({**environment.variables, **home}, start.secrets)
        if launch.resume and Quirk.TWIN_FILES in agent.quirks:
            await asyncio.to_thread(gemini_quirks.remove_twins, launch.resume, environment.variables)
        child = await start.run()

        async def create() -> "AcpAgent":
            module = await asyncio.to_thread(import_module, "kasmon.backends.acp.agent")  # takes half a second
            opened: AcpAgent = module.AcpAgent(launch, agent, child, environment)
            return opened

        variables = environment.variables
        return await open_agent(launch, child, create, backend=self.name, argv=launch.argv, variables=variables)


backend = AcpBackend()
