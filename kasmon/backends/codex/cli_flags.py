"""Convert the flags of `codex` on its command line to those of the app-server and to thread settings.

| flags | become |
|---|---|
| `-c` `--config` `--enable` `--disable` `--strict-config` | the same, for the app-server |
| `-m` `--model`, `-a` `--ask-for-approval`, `-s` `--sandbox` | the thread's model, approval policy, sandbox |
| `--full-auto` | approvals on request, in a sandbox that can write the workspace |
| `--approve-for-me` | likewise, and codex's own reviewer answers instead of the user |
| `--dangerously-bypass-approvals-and-sandbox` `--yolo` | no approvals, no sandbox |
| `--search`, `--add-dir` | settings of the config |
| `--no-alt-screen` `--no-daemon` | nothing: they only affect its screen |

Any other word is unsupported, and refused by name.

Codex itself validates the settings, and its two frontends differ: the app-server of 0.169 knows the approval policy
`untrusted`, which asks for all but harmless commands. `codex` on a terminal rejects it (`-a` is `on-request` or `never`
there, and its config may not contain `untrusted` either). So a profile with `-a untrusted` runs in mode `sdk` only.
"""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from kasmon.backends.codex.settings import PLAN
from kasmon.backends.common.json_access import Table
from kasmon.errors import LaunchError

PASSED: Final = frozenset({"-c", "--config", "--enable", "--disable"})
"""Flags with a value that the app-server accepts itself."""
PASSED_ALONE: Final = frozenset({"--strict-config"})
THREAD: Final = {
    "-m": "model",
    "--model": "model",
    "-a": "approvalPolicy",
    "--ask-for-approval": "approvalPolicy",
    "-s": "sandbox",
    "--sandbox": "sandbox",
}
"""Flags with a value that is a setting of the thread."""
BYPASS: Final = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
PRESETS: Final[dict[str, dict[str, str]]] = {
    "--full-auto": {"approvalPolicy": "on-request", "sandbox": "workspace-write"},
    "--approve-for-me": {
        "approvalPolicy": "on-request",
        "sandbox": "workspace-write",
        "approvalsReviewer": "auto_review",
    },
    "--dangerously-bypass-approvals-and-sandbox": BYPASS,
    "--yolo": BYPASS,
}
"""Flags that combine several settings of the thread."""
OF_THE_SCREEN: Final = frozenset({"--no-alt-screen", "--no-daemon"})
OF_PERMISSIONS: Final = ("approval", "sandbox", "permissions", "default_permissions", "profile", "projects")
"""How the keys of the config begin that decide what codex does unasked."""
WITH_VALUE: Final = PASSED | set(THREAD) | {"--add-dir"}


class CodexFlags(msgspec.Struct, frozen=True, kw_only=True):
    arguments: tuple[str, ...]
    """For `codex app-server`."""
    thread: Table
    """Settings for thread/start and thread/resume, by the protocol's names."""


def parse_flags(flags: Sequence[str], model: str = "") -> CodexFlags:
    """Convert *flags*; *model* applies if they name none. Of two that conflict, the later one counts.

    Raises:
        LaunchError: if one of them is unsupported; the message names it.
    """
    arguments: list[str] = []
    thread: Table = {"model": model} if model else {}
    folders: list[str] = []
    remaining = list(flags)
    while remaining:
        flag, value = _pop_flag(remaining)
        if flag in PASSED:
            arguments += [flag, value]
        elif flag in PASSED_ALONE:
            arguments.append(flag)
        elif flag in THREAD:
            thread[THREAD[flag]] = value
        elif flag in PRESETS:
            thread |= PRESETS[flag]
        elif flag == "--add-dir":
            folders.append(value)
        elif flag == "--search":
            arguments += ["-c", 'web_search="live"']
        elif flag not in OF_THE_SCREEN:
            raise _unsupported_flag(flag)
    if folders:
        roots = json.dumps(folders, ensure_ascii=False)
        arguments += ["-c", f"sandbox_workspace_write.writable_roots={roots}"]
    return CodexFlags(arguments=tuple(arguments), thread=thread)


def has_permissions(flags: Sequence[str], mode: str = "") -> bool:
    """Whether *flags*, or the permission mode *mode* at the start, decide what codex does unasked.

    Raises:
        LaunchError: as `parse_flags`.
    """
    parsed = parse_flags(flags)
    return (
        mode not in ("", PLAN)
        or bool(parsed.thread.keys() - {"model"})
        or any(word.strip().startswith(OF_PERMISSIONS) for word in parsed.arguments)
    )


def _pop_flag(values: list[str]) -> tuple[str, str]:
    """Remove and return the first flag of *values* and its value: `-m x`, `-mx`, `-m=x`, `--model x`, `--model=x`."""
    argument = values.pop(0)
    if argument.startswith("--"):
        flag, given, value = argument.partition("=")
    elif argument.startswith("-"):
        flag, given, value = argument[:2], argument[2:], argument[2:].removeprefix("=")
    else:
        raise _unsupported_flag(argument)
    if flag not in WITH_VALUE:
        if given:
            raise _unsupported_flag(flag)
        return flag, ""
    if not given:
        if not values:
            raise LaunchError(f"the codex flag {flag!r} requires a value.", hint="Check the profile's flags.")
        value = values.pop(0)
    return flag, value


def _unsupported_flag(flag: str) -> LaunchError:
    return LaunchError(
        f"cannot start codex in mode 'sdk' with {flag!r}: its app-server does not support it.",
        hint="Remove it from the profile's flags, or start with --mode tmux.",
    )
