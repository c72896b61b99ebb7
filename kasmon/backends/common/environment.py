"""The environment of an agent: what every agent gets, what is its own, where it stands in kasmon; what of it is secret.

It is the same in a terminal and by protocol. What an agent has of its own follows from the program that it is: no agent
gets another's keys.
"""

import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from kasmon.errors import UnsafeFolderError
from kasmon.launch import DEFAULT_PATH, base_environment
from kasmon.model.commands import Launch
from kasmon.model.permission import SessionId
from kasmon.model.task import environment
from kasmon.paths import Paths, places, private_folder, write_private
from kasmon.sanitize import KNOWN_LENGTH

PROVIDERS: Final = (
    "ANTHROPIC_", "CEREBRAS_", "DEEPSEEK_", "FIREWORKS_", "GEMINI_", "GOOGLE_", "GROQ_", "MISTRAL_", "MOONSHOT_",
    "OPENAI_", "OPENROUTER_", "TOGETHER_", "XAI_", "ZAI_",
)  # fmt: skip
"""How the variables of model providers begin, for an agent that takes any of them."""
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "amp": ("AMP_",),
    "claude": (
        "ANTHROPIC_", "API_TIMEOUT_MS", "AWS_", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_", "CLAUDE_", "CLOUD_ML_REGION",
        "DISABLE_", "ENABLE_TOOL_SEARCH", "FALLBACK_FOR_ALL_PRIMARY_MODELS", "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_", "IS_SANDBOX", "MAX_MCP_OUTPUT_TOKENS", "MAX_STRUCTURED_OUTPUT_RETRIES", "MAX_THINKING_TOKENS",
        "MCP_", "OTEL_", "SLASH_COMMAND_TOOL_CHAR_BUDGET", "TASK_MAX_OUTPUT_LENGTH", "USE_BUILTIN_RIPGREP",
        "VERTEX_REGION_",
    ),
    "codex": ("CODEX_", "OPENAI_"),
    "gemini": ("GEMINI_", "GOOGLE_"),
    "opencode": ("OPENCODE_", *PROVIDERS),
}  # fmt: skip
"""How the names of an agent's own variables begin, by its program; those of Claude Code are the ones it documents."""
ALIASES: Final = {"claude-code": "claude", "gemini-cli": "gemini", "opencode-ai": "opencode"}
RUNNERS: Final = frozenset({"bun", "bunx", "env", "node", "npx"})
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
"""What an agent tells the programs that it starts. kasmon may be one of them; its own agents are not."""

_SECRET_NAME: Final = re.compile(
    r"(?!.*_(?:COUNT|DIR|FILE|LIMIT|MS|PATH|TTL|TYPE)$)"
    r".*(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|TOKEN(?!S|IZ)|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|COOKIE|BEARER|JWT"
    r"|KEYS?$|PASS$|(?:^|_)(?:PAT|DSN|CREDS|HEADERS)$|_(?:AUTH|PWD)$)",
    re.IGNORECASE,
)
_IN_ADDRESS: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@:]*:([^\s/?#@]+)@")
_IN_HEADER: Final = re.compile(r"[:=][ \t]*(?:(?:[Bb]earer|[Bb]asic|[Tt]oken)[ \t]+)?([^\s,;]+)")


class AgentEnvironment(msgspec.Struct, frozen=True):
    """An agent's whole environment, and which of its values nobody may see."""

    variables: dict[str, str]
    secrets: tuple[str, ...]


def surroundings(launch: Launch, own: Sequence[str], variables: Mapping[str, str] | None = None) -> AgentEnvironment:
    """The environment for the agent of *launch*.

    Args:
        own: how the names of the agent's own variables begin, e.g. `ANTHROPIC_`; those of *variables* reach it, those
            of other agents do not.
        variables: what our own process has; default `os.environ`.
    """
    passed = inherited(own, os.environ if variables is None else variables)
    own_given = given(places(), launch.session)
    own_secrets = (value for name, value in own_given.items() if name not in launch.public_variables)
    everything = passed | own_given | environment(launch)
    if launch.sandbox is None:
        everything["PATH"] = search_path(places(), everything)
    return AgentEnvironment(
        variables=everything,
        secrets=(*secret_values(passed), *(value for value in own_secrets if len(value) >= KNOWN_LENGTH)),
    )


def search_path(where: Paths, variables: Mapping[str, str]) -> str:
    """The PATH of *variables*; where no `kasmon` is on it, with a folder at its end that holds this one alone.

    An agent reports by `kasmon ctx`, and a kasmon that runs from a virtual environment need not be on anybody's PATH.
    The environment's own folder is not added: its `python` and `pip` are not the agent's.
    """
    path = variables.get("PATH") or DEFAULT_PATH
    if shutil.which("kasmon", path=path):
        return path
    import shlex  # only here: where kasmon is on the PATH, nobody needs it

    file = where.commands / "kasmon"
    content = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m kasmon "$@"\n'.encode("utf-8", "surrogateescape")
    try:
        private_folder(where.commands)
        if not file.is_file() or file.read_bytes() != content or not os.access(file, os.X_OK):
            fresh = where.commands / f".kasmon.{os.getpid()}.{threading.get_ident()}"
            write_private(fresh, content)
            fresh.chmod(0o700)
            fresh.replace(file)
    except (OSError, UnsafeFolderError):  # its session starts all the same, and `doctor` tells of the folder
        return path
    return f"{path}{os.pathsep}{where.commands}"


def inherited(own: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """What of *variables* passes to an agent whose own ones begin with *own*: those, and what every agent gets."""
    return base_environment(dict(variables)) | taken(own, variables)


def taken(own: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """What of *variables* is an agent's whose own ones begin with *own*."""
    return {name: value for name, value in variables.items() if name.startswith(tuple(own)) and name not in NESTED}


def own_prefixes(argv: Sequence[str]) -> tuple[str, ...]:
    """How the variables begin that the agent run by *argv* has of its own; nothing for a program that nobody knows."""
    return OWN.get(program_of(argv), ())


def program_of(argv: Sequence[str]) -> str:
    """The name of the program that *argv* runs, behind a runner too: a known agent's own name, in small letters."""
    words = [PurePath(word).name for word in argv if not word.startswith("-") and "=" not in word]
    names = [word.removesuffix(".exe").removesuffix(".js").lower() for word in words]
    if names and names[0] in RUNNERS:
        names = names[1:]
    return ALIASES.get(names[0], names[0]) if names else ""


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """What nobody may see of *variables*: values that are secret by their name, and the password in an address.

    Of headers, such as `Authorization: Bearer ...`, it is the whole and each value alone.
    """
    secrets: list[str] = []
    for name, value in variables.items():
        if _SECRET_NAME.match(name):
            secrets.append(value)
            secrets += _IN_HEADER.findall(value) if name.upper().endswith("HEADERS") else ()
        elif "://" in value:
            secrets += _IN_ADDRESS.findall(value)
    return tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= KNOWN_LENGTH))


def given(where: Paths, session: SessionId) -> dict[str, str]:
    """The variables that *session* was given, from its 0600 file."""
    try:
        return decoded(where.environment(session).read_bytes())
    except FileNotFoundError:
        return {}


def given_secrets(where: Paths, session: SessionId) -> tuple[str, ...]:
    """The values of the variables that *session* was given, but for those that are public.

    Raises:
        OSError: if they cannot be read.
    """
    try:
        public = msgspec.json.decode(where.launch(session).read_bytes(), type=Launch).public_variables
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        public = ()
    return tuple(value for name, value in given(where, session).items() if value and name not in public)


def encoded(variables: Mapping[str, str]) -> bytes:
    """*variables* as they stand in a file: `NAME=value`, each ended by a NUL."""
    return b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in variables.items())


def decoded(content: bytes) -> dict[str, str]:
    """The variables in *content*, which `encoded` made."""
    entries = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in content.split(b"\0") if entry)
    return {name: value for name, _, value in entries if name}
