"""The command line and environment with which the user's own `claude` is started.

kasmon builds the command line itself: the SDK empties the system prompt, and knows the flags of one version only. It
holds the few flags of the stream-json protocol; the user's flags reach the program unchanged.
"""

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
CONVERSATION_FLAGS: Final = frozenset(
    {"--continue", "-c", "--resume", "-r", "--session-id", "--fork-session", "--from-pr"}
)


def command(launch: Launch, *, begin: str = "", resume: str = "", forks_at: str | None = None) -> list[str]:
    """Return the command line for *launch*.

    kasmon's flags come after the user's, so that no user flag can change the protocol; the model comes first, as a
    default.

    Args:
        begin: the id of a new conversation.
        resume: the id of the conversation to resume.
        forks_at: the id of its last message to copy into the new conversation *begin*, instead of resuming it; empty
            for all messages.
    """
    program, *flags = launch.argv
    model = ["--model", launch.model] if launch.model else []
    which = [f"--resume={resume}"] if resume else [f"--session-id={begin}"] if begin else []
    if forks_at is not None:
        until = [f"--resume-session-at={forks_at}"] if forks_at else []
        which = [f"--resume={resume}", "--fork-session", *until, f"--session-id={begin}"]
    end = flags.index("--") if "--" in flags else len(flags)
    return [program, *model, *flags[:end], *PROTOCOL, *which, *flags[end:]]


def chooses_conversation(flags: Sequence[str]) -> bool:
    """Whether the user's *flags* choose the conversation, so that kasmon does not."""
    return any(flag.partition("=")[0] in CONVERSATION_FLAGS for flag in flags)


def forks(flags: Sequence[str]) -> bool:
    """Whether the user wants each start to resume a copy of the conversation, under another id."""
    return "--fork-session" in flags


def model_of(command: Sequence[str]) -> str:
    """Return the model that *command* requests; empty if the agent chooses."""
    asked = ""
    for flag, following in zip(command, [*command[1:], ""], strict=True):
        if flag == "--model":
            asked = following
        elif flag.startswith("--model="):
            asked = flag.partition("=")[2]
    return asked


def environment(launch: Launch, variables: Mapping[str, str], sdk: str) -> dict[str, str]:
    """Return the whole environment of the process: *variables*, and what the protocol needs; *sdk* is its version."""
    kept = {name: value for name, value in variables.items() if (name, value) != ("CLAUDE_CONFIG_DIR", "")}
    return {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        **kept,
        "CLAUDE_AGENT_SDK_VERSION": sdk,
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "PWD": launch.workdir,
    }
