"""Which hooks an agent gets when it starts: by argument, for this run only, without changing the user's files.

| agent | hooks | absent where, or why |
|---|---|---|
| claude | `--settings`, which adds to the user's own | its flags have `--settings` already |
| codex | `-c hooks.*`, which adds to the user's, and the hashes it trusts | its flags set hooks; an unknown version |
| gemini | - | it takes settings from elsewhere only out of files and folders that are root's, and warns of others |
| opencode | - | a plugin makes it install packages before it starts: 100 s where there is no network |
"""

import re
import shlex
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kasmon.agents.catalog import find
from kasmon.backends.common.agent_version import version_of
from kasmon.backends.common.claude_background import attached_id
from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.evidence.hooks import FILE

EMIT: Final = Path(__file__).resolve().parents[3] / "emit.py"
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
"""The events of Claude Code that show its state."""
CODEX: Final = {
    "UserPromptSubmit": "user_prompt_submit",
    "PreToolUse": "pre_tool_use",
    "PermissionRequest": "permission_request",
    "PostToolUse": "post_tool_use",
    "Stop": "stop",
}
"""Those of Codex, and their names in its list of trusted hooks."""
SEEN_CODEX: Final = re.compile(r"\b0\.(?:169|171)\.")
"""The versions whose format of hook trust is known: another might ask the user about it, or refuse to start."""
TIMEOUT_S: Final = 5


class HookSetup(NamedTuple):
    """How an agent is started with its hooks."""

    argv: tuple[str, ...]
    variables: Mapping[str, str]
    why_not: str = ""
    """Why it has no hooks; empty if it has some."""


def hooked(
    program: str, argv: Sequence[str], folder: Path, generation: int, nonce: str, emit: Sequence[str] = ()
) -> HookSetup:
    """Return *argv* of the agent *program* with hooks that write notes to the session's *folder*, or run *emit*."""
    if why := why_not(program, argv):
        return HookSetup(tuple(argv), {}, why)
    command = shlex.join(emit or [sys.executable, "-I", "-S", str(EMIT), str(folder / FILE)])
    variables = {"KASMON_GENERATION": str(generation), "KASMON_NONCE": nonce}
    if program == "codex":
        return HookSetup((argv[0], *_for_codex(command), *argv[1:]), variables)
    entry = [{"matcher": "", "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]
    import json  # here and below: `kasmon explain` starts no agent

    settings = json.dumps({"hooks": dict.fromkeys(CLAUDE, entry)}, separators=(",", ":"))
    return HookSetup((argv[0], "--settings", settings, *argv[1:]), variables)


def hookable(argv: Sequence[str]) -> str | None:
    """Return the agent that *argv* runs, if its program can have hooks."""
    program = program_of(argv)
    return program if program in ("claude", "codex") or find(program).evidence.no_hooks else None


def why_not(program: str, argv: Sequence[str]) -> str:
    """Return why an agent *program* started by *argv* gets no hooks; empty if it gets some.

    Blocks: Codex is asked for its version, once.
    """
    named = {"claude": ("claude", "claude-code"), "codex": ("codex",)}.get(program)
    if named is None:
        return find(program).evidence.no_hooks or "no hooks are known for this program"
    if not argv or Path(argv[0]).name not in named:
        return "it is started by another program, which may not pass them on"
    return _why_not_codex(argv) if program == "codex" else _why_not_claude(argv)


def _why_not_claude(argv: Sequence[str]) -> str:
    if attached_id("claude", argv):
        return "it shows a background session, which runs already"
    if any(word == "--settings" or word.startswith("--settings=") for word in argv[1:]):
        return "its flags already contain --settings"
    if "--bare" in argv or "--safe-mode" in argv:
        return "its flags turn hooks off"
    return ""


def _why_not_codex(argv: Sequence[str]) -> str:
    overrides = [word.removeprefix("--config").removeprefix("-c").lstrip("=").strip() for word in argv[1:]]
    if any(word.startswith(("hooks.", "hooks=", "features.hooks")) for word in overrides):
        return "its flags already configure hooks"
    version = version_of(argv)
    if not SEEN_CODEX.search(version):
        return f"hooks are untested with {version or 'its version'}; it reports its state itself"
    return ""


def _for_codex(command: str) -> list[str]:
    """Return the flags for hooks that run *command*: Codex runs a hook only if its hash is among those it trusts."""
    import json

    handler: dict[str, Any] = {"type": "command", "command": command, "timeout": TIMEOUT_S}
    toml = ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in handler.items())
    flags: list[str] = []
    trusted: list[str] = []
    for event, name in CODEX.items():
        flags += ["-c", f"hooks.{event}=[{{hooks=[{{{toml}}}]}}]"]
        trusted_hash = hash_of({"event_name": name, "hooks": [{**handler, "async": False}]})
        trusted.append(f'"/<session-flags>/config.toml:{name}:0:0"={{trusted_hash="{trusted_hash}"}}')
    return [*flags, "-c", f"hooks.state={{{','.join(trusted)}}}"]


def hash_of(hook: Mapping[str, Any]) -> str:
    """Return the hash that Codex computes of *hook*: over its canonical JSON."""
    import json

    text = json.dumps(hook, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    import hashlib  # only here: `kasmon explain` takes no digest, and the library takes 4 ms to load

    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def absent(program: str, argv: Sequence[str], reporting: Container[str]) -> Mapping[str, str]:
    """Return why a source is not among those *reporting* on the agent *program*, by source; only known reasons."""
    no_status = find(program).evidence.no_status
    why = {"program": no_status, "hook": why_not(program, argv) if no_status else ""}
    return {source: reason for source, reason in why.items() if reason and source not in reporting}
