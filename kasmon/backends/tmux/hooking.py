"""Which hooks an agent is given when it starts, without touching a file of the person's: by argument, for this once.

| agent | hooks | why not |
|---|---|---|
| claude | `--settings`, which adds to the person's own settings | absent where its flags have `--settings` already |
| codex | - | it reports its own state in its output; its `notify` would take the place of the person's |
| gemini | - | its title says the same; its settings take hooks only from files that are the person's or the system's |
| opencode | - | plugins come only from folders that may be the person's |
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.backends.tmux.hooks import FILE
from kasmon.backends.tmux.program import program_of

EMIT: Final = Path(__file__).resolve().parent.parent.parent / "emit.py"
"""`kasmon-emit`: run by its path, since an agent need not have it on its PATH."""
CLAUDE: Final = (
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "Notification",
    "PostToolUse",
    "Stop",
    "StopFailure",
)
"""The events of Claude Code that say something of its state."""
TIMEOUT_S: Final = 5
ABSENT: Final = {
    "codex": "it reports its state itself; its one notify command stays the person's",
    "gemini": "it takes hooks only from the person's or the system's settings; its title says the same",
    "opencode": "it takes plugins only from folders that may be the person's",
}


class Hooked(NamedTuple):
    """What an agent is started with for the sake of its hooks."""

    argv: tuple[str, ...]
    variables: Mapping[str, str]
    why_not: str = ""
    """Why it has none; empty where it has."""


def hooked(program: str, argv: Sequence[str], folder: Path, generation: int, nonce: str) -> Hooked:
    """*argv* of the agent *program* with hooks that leave their notes in the session's *folder*."""
    if why := why_not(program, argv):
        return Hooked(tuple(argv), {}, why)
    command = shlex.join([sys.executable, "-I", "-S", str(EMIT), str(folder / FILE)])
    entry = [{"matcher": "", "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]
    settings = json.dumps({"hooks": dict.fromkeys(CLAUDE, entry)}, separators=(",", ":"))
    variables = {"KASMON_GENERATION": str(generation), "KASMON_NONCE": nonce}
    return Hooked((argv[0], "--settings", settings, *argv[1:]), variables)


def hookable(argv: Sequence[str]) -> str | None:
    """The agent that *argv* runs, if it is one that knows hooks."""
    program = program_of(argv)
    return program if program == "claude" or program in ABSENT else None


def why_not(program: str, argv: Sequence[str]) -> str:
    """Why an agent *program* that is started by *argv* gets no hooks; empty where it gets some."""
    if program != "claude":
        return ABSENT.get(program, "nobody knows hooks of this program")
    if not argv or Path(argv[0]).name not in ("claude", "claude-code"):
        return "it is started by another program, which may not pass them on"
    if any(word == "--settings" or word.startswith("--settings=") for word in argv[1:]):
        return "its flags have --settings already"
    if "--bare" in argv or "--safe-mode" in argv:
        return "its flags turn hooks off"
    return ""
