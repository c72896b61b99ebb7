"""The environment of an agent: common variables, its own ones, kasmon's; and which of its values are secret.

It is the same in a terminal and over a protocol. The program determines which variables are an agent's own: no agent
gets the keys of another.
"""

import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kasmon.agents.catalog import find, resolved
from kasmon.errors import UnsafeFolderError
from kasmon.launch import DEFAULT_PATH, base_environment
from kasmon.model.agent_program import SHELLS, program_name
from kasmon.model.commands import Launch
from kasmon.model.permission import SessionId
from kasmon.model.task import environment
from kasmon.paths import Paths, find_program, private_folder, read_json, user_paths, write_private
from kasmon.sanitize import KNOWN_LENGTH

PROVIDERS: Final = (
    "ANTHROPIC_", "CEREBRAS_", "DEEPSEEK_", "FIREWORKS_", "GEMINI_", "GOOGLE_", "GROQ_", "MISTRAL_", "MOONSHOT_",
    "OPENAI_", "OPENROUTER_", "TOGETHER_", "XAI_", "ZAI_",
)  # fmt: skip
"""Name prefixes of the variables of model providers, for an agent that supports any of them."""
NESTED: Final = frozenset(
    {
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_AGENT_SDK_VERSION",
        "CODEX_PERMISSION_PROFILE",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
        "GEMINI_CLI",
        "OPENCODE",
    }
)
"""Variables that an agent sets for its child processes. kasmon may be one, so it does not pass them on."""

_SECRET_NAME: Final = re.compile(
    r"(?!.*_(?:COUNT|DIR|FILE|LIMIT|MS|PATH|TTL|TYPE)$)"
    r".*(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|TOKEN(?!S|IZ)|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|COOKIE|BEARER|JWT"
    r"|KEYS?$|PASS$|(?:^|_)(?:PAT|DSN|CREDS|HEADERS)$|_(?:AUTH|PWD)$)",
    re.IGNORECASE,
)
_IN_ADDRESS: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@:]*:([^\s/?#@]+)@")
_IN_HEADER: Final = re.compile(r"[:=][ \t]*(?:(?:[Bb]earer|[Bb]asic|[Tt]oken)[ \t]+)?([^\s,;]+)")


class AgentEnvironment(msgspec.Struct, frozen=True):
    """An agent's whole environment, and which of its values are secret."""

    variables: dict[str, str]
    secrets: tuple[str, ...]


def build_environment(
    launch: Launch, own: Sequence[str], variables: Mapping[str, str] | None = None
) -> AgentEnvironment:
    """Return the environment for the agent of *launch*.

    Args:
        own: name prefixes of the agent's own variables, e.g. `ANTHROPIC_`; of *variables*, the agent gets these but not
            those of other agents.
        variables: the environment of this process; default `os.environ`.
    """
    passed = inherited(own, os.environ if variables is None else variables)
    session_variables = load_variables(user_paths(), launch.session)
    own_secrets = (value for name, value in session_variables.items() if name not in launch.public_variables)
    everything = passed | session_variables | environment(launch)
    if launch.sandbox is None:
        everything["PATH"] = search_path(user_paths(), everything)
    return AgentEnvironment(
        variables=everything,
        secrets=(*secret_values(passed), *(value for value in own_secrets if len(value) >= KNOWN_LENGTH)),
    )


def search_path(where: Paths, variables: Mapping[str, str]) -> str:
    """Return the PATH of *variables*; if it has no `kasmon`, append a folder that holds only this one.

    An agent reports by `kasmon ctx`, and a kasmon in a virtual environment may not be on the PATH. The virtual
    environment's own folder is not added: its `python` and `pip` are not for the agent.
    """
    path = variables.get("PATH") or DEFAULT_PATH
    if find_program("kasmon", path):
        return path
    import shlex  # imported late: needed only if kasmon is not on the PATH

    file = where.commands / "kasmon"
    content = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m kasmon "$@"\n'.encode("utf-8", "surrogateescape")
    try:
        private_folder(where.commands)
        if not file.is_file() or file.read_bytes() != content or not os.access(file, os.X_OK):
            fresh = where.commands / f".kasmon.{os.getpid()}.{threading.get_ident()}"
            write_private(fresh, content)
            fresh.chmod(0o700)
            fresh.replace(file)
    except (OSError, UnsafeFolderError):  # the session starts all the same, and `doctor` reports the folder
        return path
    return f"{path}{os.pathsep}{where.commands}"


def inherited(own: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the part of *variables* for an agent with the prefixes *own*: its own and those that every agent gets."""
    return base_environment(dict(variables)) | select_own(own, variables)


def select_own(own: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of *variables* that begin with a prefix in *own*."""
    return {name: value for name, value in variables.items() if name.startswith(tuple(own)) and name not in NESTED}


def own_prefixes(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the name prefixes of the own variables of the agent that *argv* runs; empty for an unknown program."""
    own = find(program_of(argv)).variables
    return (*own.own, *PROVIDERS) if own.providers else own.own


def program_of(argv: Sequence[str], agent: str = "") -> str:
    """Return the name of the program that *argv* runs, aliases resolved; in a shell, the agent *agent* if that is set.

    *agent* is also returned if *argv* names no program.
    """
    agent, name = agent.partition("@")[0], program_name(argv)  # on another machine the name is the same
    name = resolved(name) or agent
    return agent if name in SHELLS and agent and agent != "shell" else name


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in *variables*: values with a secret name, and the password in an address.

    Of headers, such as `Authorization: Bearer ...`, the whole and each value alone are secret.
    """
    secrets: list[str] = []
    for name, value in variables.items():
        if _SECRET_NAME.match(name):
            secrets.append(value)
            secrets += _IN_HEADER.findall(value) if name.upper().endswith("HEADERS") else ()
        elif "://" in value:
            secrets += _IN_ADDRESS.findall(value)
    return tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= KNOWN_LENGTH))


def load_variables(where: Paths, session: SessionId) -> dict[str, str]:
    """Return the variables set for *session*, from its 0600 file."""
    try:
        return decoded(where.environment(session).read_bytes())
    except FileNotFoundError:
        return {}


def given_secrets(where: Paths, session: SessionId) -> tuple[str, ...]:
    """Return the values of the variables set for *session*, except the public ones.

    Raises:
        OSError: if they cannot be read.
    """
    launch = read_json(where.launch(session), Launch, None)
    public = launch.public_variables if launch is not None else ()
    return tuple(value for name, value in load_variables(where, session).items() if value and name not in public)


def encoded(variables: Mapping[str, str]) -> bytes:
    """Return *variables* as file content: `NAME=value`, each ended by a NUL."""
    return b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in variables.items())


def decoded(content: bytes) -> dict[str, str]:
    """Return the variables in *content*, which `encoded` produced."""
    entries = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in content.split(b"\0") if entry)
    return {name: value for name, _, value in entries if name}
