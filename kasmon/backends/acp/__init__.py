"""Any agent that speaks the Agent Client Protocol on its stdio: opencode, gemini, or one named by a profile."""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kasmon.agents.catalog import find
from kasmon.agents.profile import AgentProfile, Quirk
from kasmon.backends.acp import gemini_quirks
from kasmon.backends.base import Abilities, Agent
from kasmon.backends.common.agent_start import limit_s, prepare_start
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import (
    AgentEnvironment,
    build_environment,
    own_prefixes,
    program_of,
    secret_values,
)
from kasmon.backends.common.structured_agent import open_agent
from kasmon.backends.project_trust import check
from kasmon.errors import ExtraMissingError, LaunchError
from kasmon.model.commands import ConversationOffers, Launch

if TYPE_CHECKING:
    from kasmon.backends.acp.agent import AcpAgent
    from kasmon.backends.acp.conversation_store import ConversationStore

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
        _require_sdk()
        agent, environment, child = await self._start(launch, {})

        async def create() -> "AcpAgent":
            module = await asyncio.to_thread(import_module, "kasmon.backends.acp.agent")  # takes half a second
            opened: AcpAgent = module.AcpAgent(launch, agent, child, environment)
            return opened

        variables = environment.variables
        return await open_agent(launch, child, create, backend=self.name, argv=launch.argv, variables=variables)

    async def list_conversations(self, launch: Launch, own: Mapping[str, str], folder: str) -> ConversationOffers:
        """Return what the agent of *launch* stores for *folder*, as `ConversationStore.list`.

        The agent runs for that alone, in the folder of *launch*, with its *own* variables as a session of it would get
        them. *launch* may name no session.
        """
        return await (await self._open_store(launch, own)).list(folder, limit_s(launch))

    async def delete_conversation(self, launch: Launch, own: Mapping[str, str], conversation: str) -> None:
        """Have the agent of *launch* delete *conversation*, as `ConversationStore.delete`; *own* as above."""
        await (await self._open_store(launch, own)).delete(conversation, limit_s(launch))

    async def _open_store(self, launch: Launch, own: Mapping[str, str]) -> "ConversationStore":
        _require_sdk()
        module = await asyncio.to_thread(import_module, "kasmon.backends.acp.conversation_store")
        agent, environment, child = await self._start(launch, own)
        store: ConversationStore = module.ConversationStore(launch, agent, child, environment.secrets)
        return store

    async def _start(
        self, launch: Launch, own: Mapping[str, str]
    ) -> tuple[AgentProfile, AgentEnvironment, ChildProcess]:
        """Start the agent of *launch* with its *own* variables, beside those in the session's file."""
        if not launch.argv:
            raise LaunchError("the agent's profile has no program.", hint="Set `program` in its profile.")
        agent = await asyncio.to_thread(lambda: find(program_of(launch.argv)))  # reads folders of agents
        prefixes = await asyncio.to_thread(own_prefixes, launch.argv)
        environment = await asyncio.to_thread(build_environment, launch, prefixes)
        variables = {**agent.variables.structured, **environment.variables, **own}
        environment = AgentEnvironment(variables, (*environment.secrets, *secret_values(own)))
        await asyncio.to_thread(check, self.name, launch.argv, launch.workdir, environment.variables)
        start = await prepare_start(launch, launch.argv, environment)
        home = {"HOME": start.home, "GEMINI_CLI_HOME": ""} if start.home else {}  # where its conversations are
        environment = AgentEnvironment({**environment.variables, **home}, start.secrets)
        if launch.resume and Quirk.TWIN_FILES in agent.quirks:
            await asyncio.to_thread(gemini_quirks.remove_twins, launch.resume, environment.variables)
        return agent, environment, await start.run()


def _require_sdk() -> None:
    """Raise `ExtraMissingError` if the SDK is not installed."""
    if find_spec(SDK) is None:
        raise ExtraMissingError(AcpBackend.name, "acp")


backend = AcpBackend()
