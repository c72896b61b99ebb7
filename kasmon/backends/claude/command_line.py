"""How the user's own `claude` is started: its command line, and its environment.

The command line is ours and not the SDK's: that one empties the system prompt, and knows the flags of one version only.
It holds the few flags of the stream-json protocol; the user's reach the program unchanged.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from kasmon.model.commands import Launch

PROTOCOL: Final = (
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
)
OWN_PREFIXES: Final = (
    "ANTHROPIC_",
    "API_TIMEOUT_MS",
    "AWS_",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_",
    "CLAUDE_",
    "CLOUD_ML_REGION",
    "DISABLE_",
    "ENABLE_TOOL_SEARCH",
    "FALLBACK_FOR_ALL_PRIMARY_MODELS",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_",
    "IS_SANDBOX",
    "MAX_MCP_OUTPUT_TOKENS",
    "MAX_STRUCTURED_OUTPUT_RETRIES",
    "MAX_THINKING_TOKENS",
    "MCP_",
    "OTEL_",
    "SLASH_COMMAND_TOOL_CHAR_BUDGET",
    "TASK_MAX_OUTPUT_LENGTH",
    "USE_BUILTIN_RIPGREP",
    "VERTEX_REGION_",
)
"""How the variables begin that Claude Code documents as its own, those of Bedrock and Vertex among them."""
CONVERSATION_FLAGS: Final = frozenset(
    {"--continue", "-c", "--resume", "-r", "--session-id", "--fork-session", "--from-pr"}
)
"""Flags by which the user chooses the conversation."""


def command(launch: Launch, *, begin: str = "", resume: str = "") -> list[str]:
    """The command line for *launch*.

    Ours stand behind the user's, so that no flag of theirs can change the protocol; the model stands before, as a
    default.

    Args:
        launch: whose `argv` is the program's path and the user's flags.
        begin: the id that a new conversation gets.
        resume: the id of the conversation to go on with.
    """
    program, *flags = launch.argv
    model = ["--model", launch.model] if launch.model else []
    which = [f"--resume={resume}"] if resume else [f"--session-id={begin}"] if begin else []
    end = flags.index("--") if "--" in flags else len(flags)
    return [program, *model, *flags[:end], *PROTOCOL, *which, *flags[end:]]


def chooses_conversation(flags: Sequence[str]) -> bool:
    """Whether the user's *flags* say which conversation it is, so that we do not."""
    return any(flag.partition("=")[0] in CONVERSATION_FLAGS for flag in flags)


def forks(flags: Sequence[str]) -> bool:
    """Whether the user wants each start to go on in a copy of the conversation, under another id."""
    return "--fork-session" in flags


def model_of(command: Sequence[str]) -> str:
    """The model that *command* asks for; empty where it leaves that to the agent."""
    asked = ""
    for flag, following in zip(command, [*command[1:], ""], strict=True):
        if flag == "--model":
            asked = following
        elif flag.startswith("--model="):
            asked = flag.partition("=")[2]
    return asked


def environment(launch: Launch, variables: Mapping[str, str], sdk: str) -> dict[str, str]:
    """The whole environment of the process: *variables*, and what the protocol needs.

    Args:
        launch: says where it works.
        variables: what every agent gets, and this agent's own.
        sdk: the version of the SDK that speaks with it.
    """
    kept = {name: value for name, value in variables.items() if (name, value) != ("CLAUDE_CONFIG_DIR", "")}
    return {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        **kept,
        "CLAUDE_AGENT_SDK_VERSION": sdk,
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "PWD": launch.workdir,
    }


def config_folder(variables: Mapping[str, str]) -> str:
    """Where the agent keeps what it remembers."""
    home = variables.get("HOME", "/")
    return variables.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")  # noqa: PTH118 - any text may stand there
