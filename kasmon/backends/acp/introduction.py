"""The handshake with an agent: its introduction, what its refusals mean, and how a user logs in to it."""

import shlex
from collections.abc import Sequence
from typing import Final

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import AuthMethodAgent, EnvVarAuthMethod, InitializeResponse, TerminalAuthMethod
from pydantic import ValidationError

from kasmon.agents.profile import AgentProfile
from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.common.json_access import at, table, text
from kasmon.errors import LogInRequiredError, UnfitAgentError
from kasmon.model.commands import TerminalLogIn
from kasmon.sanitize import clean_line, has_hidden


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


AuthMethod = EnvVarAuthMethod | TerminalAuthMethod | AuthMethodAgent
OLDER: Final = "terminal-auth"
"""How agents offered a log-in in a terminal before the protocol had a type for it: in `_meta`, with the command."""


def missing_log_in(
    name: str, answer: str, introduced: InitializeResponse, agent: AgentProfile, argv: Sequence[str]
) -> LogInRequiredError:
    """Return the error of an agent that refused with *answer* because it requires a log-in, with the ways to log in."""
    methods = [_describe(method, argv) for method in introduced.auth_methods or ()]
    offers = f" It offers: {'; '.join(methods)}." if methods else ""
    message, hint = f"{name!r} requires a login: {answer}", agent.log_in.how + offers
    if (log_in := find_terminal_log_in(introduced, argv)) is None:
        return LogInRequiredError(message, hint=hint)
    return LogInRequiredError(message, hint=hint, title=log_in.title, argv=log_in.argv, variables=log_in.variables)


def find_terminal_log_in(introduced: InitializeResponse, argv: Sequence[str]) -> TerminalLogIn | None:
    """Return the first log-in in a terminal that the agent offers; None if it offers none that can be shown as it is.

    *argv* is the agent's own command, to which the protocol adds the arguments of a log-in.
    """
    offered = (_terminal_log_in(method, argv) for method in introduced.auth_methods or ())
    return next((each for each in offered if each is not None), None)


def _terminal_log_in(method: AuthMethod, own: Sequence[str]) -> TerminalLogIn | None:
    if isinstance(method, TerminalAuthMethod):
        argv, variables = (*own, *(method.args or ())), method.env or {}
    else:
        older = table(method.field_meta, OLDER)
        command, arguments = text(older, "command"), at(older, "args")
        variables = {name: value for name, value in table(older, "env").items() if isinstance(value, str)}
        command_arguments = arguments if isinstance(arguments, list) else []
        if not command or not all(isinstance(word, str) for word in command_arguments):
            return None
        argv = (command, *command_arguments)
    shown = (*argv, *variables, *variables.values())
    is_shown_whole = not any(has_hidden(word) or {"\n", "\t"} & {*word} for word in shown)
    return TerminalLogIn(title=clean_line(method.name), argv=argv, variables=variables) if is_shown_whole else None


def _describe(method: AuthMethod, argv: Sequence[str]) -> str:
    """Return *method* as text; for one in a terminal with the command."""
    if (log_in := _terminal_log_in(method, argv)) is not None:
        variables = [f"--env-public={name}={value}" for name, value in log_in.variables.items()]
        command = shlex.join(["kasmon", "new", "login", *variables, "--", *log_in.argv])
        return f"{method.name}: `{command}`"
    if isinstance(method, EnvVarAuthMethod):
        return f"{method.name} ({', '.join(variable.name for variable in method.vars)})"
    return f"{method.name} ({method.description})" if method.description else method.name
