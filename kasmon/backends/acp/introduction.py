"""The handshake with an agent: its introduction, what its refusals mean, and how a user logs in to it."""

import shlex
from collections.abc import Sequence

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import AuthMethodAgent, EnvVarAuthMethod, InitializeResponse, TerminalAuthMethod
from pydantic import ValidationError

from kasmon.agents.profile import AgentProfile
from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.errors import LaunchError, UnfitAgentError
from kasmon.sanitize import has_hidden


async def introduce(client: AcpClient, name: str, secrets: Sequence[str]) -> InitializeResponse:
    """Return the introduction of the agent *name*.

    Raises:
        UnfitAgentError: if it fails, is invalid, or is of another version of the protocol.
    """
    try:
        introduced = await client.initialize()
    except RequestError as error:
        raise UnfitAgentError(f"{name!r} failed to initialise: {errors.words(error, secrets)}") from error
    except ValidationError as error:
        raise UnfitAgentError(
            f"{name!r} did not initialise as an Agent Client Protocol agent.",
            hint="Check the profile's `acp` arguments.",
        ) from error
    if introduced.protocol_version != PROTOCOL_VERSION:
        raise UnfitAgentError(
            f"{name!r} speaks version {introduced.protocol_version} of the Agent Client Protocol, kasmon "
            f"version {PROTOCOL_VERSION}.",
            hint="Install a version that is compatible with this kasmon.",
        )
    return introduced


def missing_log_in(
    name: str, said: str, introduced: InitializeResponse, agent: AgentProfile, program: str
) -> LaunchError:
    """Return the error of an agent that refused with *said* because it requires a log-in, with the ways to log in."""
    methods = [_log_in_method(method, program) for method in introduced.auth_methods or ()]
    offers = f" It offers: {'; '.join(methods)}." if methods else ""
    return LaunchError(f"{name!r} requires a login: {said}", hint=agent.log_in.how + offers)


def _log_in_method(method: EnvVarAuthMethod | TerminalAuthMethod | AuthMethodAgent, program: str) -> str:
    """Return *method* as text; for one in a terminal the command that the user may run. kasmon never runs it itself."""
    if isinstance(method, TerminalAuthMethod):
        variables = [f"--env-public={name}={value}" for name, value in (method.env or {}).items()]
        command = shlex.join(["kasmon", "new", "login", *variables, "--", program, *(method.args or ())])
        return method.name if has_hidden(command) or "\n" in command else f"{method.name}: `{command}`"
    if isinstance(method, EnvVarAuthMethod):
        return f"{method.name} ({', '.join(variable.name for variable in method.vars)})"
    return f"{method.name} ({method.description})" if method.description else method.name
