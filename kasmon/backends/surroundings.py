"""The environment of a structured agent: what every agent gets, what is its own, and where it stands in kasmon."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kasmon.launch import base_environment
from kasmon.model.command import Launch
from kasmon.model.permission import SessionId
from kasmon.model.task import environment
from kasmon.paths import Places, places

NESTED: Final = frozenset(
    {
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_AGENT_SDK_VERSION",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "GEMINI_CLI",
        "OPENCODE",
    }
)
"""What an agent tells the programs that it starts. kasmon may be one of them; its own agents are not."""


class Surroundings(msgspec.Struct, frozen=True):
    """An agent's whole environment, and which of its values nobody may see."""

    variables: dict[str, str]
    secrets: tuple[str, ...]


def surroundings(launch: Launch, own: Sequence[str], variables: Mapping[str, str] | None = None) -> Surroundings:
    """The environment for the agent of *launch*.

    Args:
        own: how the names of the agent's own variables begin, e.g. `ANTHROPIC_`; those of *variables* reach it, those
            of other agents do not.
        variables: what our own process has; default `os.environ`.
    """
    here = dict(os.environ if variables is None else variables)
    taken = {name: value for name, value in here.items() if name.startswith(tuple(own)) and name not in NESTED}
    own_given = given(places(), launch.session)
    return Surroundings(
        variables=base_environment(here) | taken | own_given | environment(launch),
        secrets=tuple(value for value in (*taken.values(), *own_given.values()) if len(value) >= 8),
    )


def given(where: Places, session: SessionId) -> dict[str, str]:
    """The variables that *session* was given, from its 0600 file."""
    try:
        entries = where.environment(session).read_bytes().split(b"\0")
    except FileNotFoundError:
        return {}
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs if name}
