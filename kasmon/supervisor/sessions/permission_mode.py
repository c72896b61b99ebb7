"""Keep the permission mode of an agent when it moves between a terminal and its protocol.

| program | in a terminal | structured |
|---|---|---|
| claude | `--permission-mode` | `--permission-mode` |
| codex | `-a` (not `untrusted`), `-s`; plan mode only by a key | `-a`, `-s`; plan mode by its protocol |
| gemini | `--approval-mode` | its protocol's `session/set_mode` |
| opencode | `--agent` | its protocol's `session/set_mode` |

The permissions of an opencode agent are in its config and variables, which both sides share. Flags as in
claude 2.1.330, codex 0.169, gemini 0.61 and opencode 1.18.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import LaunchError
from kasmon.model.codex_permissions import PLAN, CodexPermissions
from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line

FLAGS: Final = {
    "claude": {"--permission-mode": 2, "--dangerously-skip-permissions": 1},
    "codex": {
        "-a": 2,
        "--ask-for-approval": 2,
        "-s": 2,
        "--sandbox": 2,
        "--full-auto": 1,
        "--dangerously-bypass-approvals-and-sandbox": 1,
        "--yolo": 1,
    },
    "gemini": {"--approval-mode": 2, "--yolo": 1, "-y": 1},
    "opencode": {"--agent": 2, "--auto": 1},
}
"""Program -> its flags for permissions, each with its number of words."""
GEMINI: Final = {"autoEdit": "auto_edit"}
"""Modes that gemini's flag and its protocol name differently."""
POLICIES: Final = ("on-request", "never")
"""The approval policies that codex accepts in a terminal."""
REVIEWED: Final = "--approve-for-me"
"""With this flag codex reviews requests itself; it also sets policy and sandbox."""


class TranslatedMode(NamedTuple):
    """How to start an agent so that it asks as much as before."""

    argv: tuple[str, ...]
    permission_mode: str = ""
    problem: str = ""
    """Why it would not ask as much as before; empty if it would."""


def translate(
    program: str, argv: Sequence[str], mode: str, to: Mode, codex: CodexPermissions | None = None
) -> TranslatedMode:
    """Return *argv*, without a conversation, for *program* to continue in *to* with the permission mode *mode*. Pure.

    Args:
        argv: the program and the flags of its profile.
        mode: the mode last reported by its agent, as its protocol names it; empty if never reported.
        to: the mode of the session to continue in.
        codex: the permissions in its rollout, for codex.
    """
    if program not in FLAGS:
        why = f"kasmon does not know how to start {program!r} in permission mode {mode!r}" if mode else ""
        return TranslatedMode(tuple(argv), problem=why)
    if program == "codex":
        return _codex(argv, mode, to, codex or CodexPermissions())
    if not mode:
        return TranslatedMode(tuple(argv), problem=f"{program} did not report its permission mode")
    plain, is_terminal = _remove_flags(argv, FLAGS[program]), to is Mode.TMUX
    if program == "claude":
        return TranslatedMode((*plain, "--permission-mode", mode))
    if program == "gemini":
        return TranslatedMode(
            (*plain, "--approval-mode", GEMINI.get(mode, mode)) if is_terminal else plain, _acp(mode, to)
        )
    if "--auto" in argv:
        flags = _remove_flags(argv, FLAGS[program]) if to is Mode.SDK else tuple(argv)
        why = "opencode's --auto, which allows what its config asks for, works in terminals only"
        return TranslatedMode(flags, _acp(mode, to), why)
    return TranslatedMode((*plain, "--agent", mode) if is_terminal else plain, _acp(mode, to))


def problem_of(program: str, mode: str, to: Mode) -> str:
    """Return why *program* in permission mode *mode* would not ask as much in *to*, as far as *mode* alone shows."""
    if program not in FLAGS:
        return ""
    return translate(program, (program,), mode, to, CodexPermissions(policy="on-request", sandbox="read-only")).problem


def of_codex(folder: Path, conversation: str) -> CodexPermissions:
    """Return the permissions in codex's rollout of *conversation*, in its *folder*; empty if it is gone. Blocks."""
    from kasmon.backends.tmux.evidence.codex_rollout import permissions  # the dashboard's dialog needs no backend

    with contextlib.suppress(OSError):
        for file in sorted(folder.glob(f"sessions/*/*/*/rollout-*-{conversation}.jsonl"), reverse=True):
            return permissions(file)
    return CodexPermissions()


def _codex(argv: Sequence[str], mode: str, to: Mode, codex: CodexPermissions) -> TranslatedMode:
    policy = codex.policy if mode in ("", PLAN) else mode
    is_planning = (mode or codex.mode) == PLAN
    sandbox = codex.sandbox or _sandbox_of(argv)
    plain, own_mode = _remove_flags(argv, FLAGS["codex"]), PLAN if is_planning and to is Mode.SDK else ""
    flags = (*plain, "-a", policy, *(("-s", sandbox) if sandbox else ()))
    problem = ""
    if not policy:
        flags, problem = tuple(argv), "codex did not report its approval policy"
    elif policy == "untrusted" and to is Mode.TMUX:
        flags = (*plain, "-a", "on-request", *flags[len(plain) + 2 :])
        problem = "codex uses the approval policy 'untrusted', which it does not accept in a terminal"
    elif policy not in (*POLICIES, "untrusted"):
        flags, problem = tuple(argv), f"codex accepts the approval policy {clean_line(policy)!r} only from its config"
    elif codex.policy and not codex.sandbox:
        problem = "codex has not reported the sandbox of its commands since its last turn"
    elif REVIEWED in argv and (policy, sandbox) == ("on-request", "workspace-write"):
        flags = tuple(argv)
    elif is_planning and to is Mode.TMUX:
        problem = "codex is in plan mode, which can be selected in a terminal only by a key"
    return TranslatedMode(flags, own_mode, problem)


def _sandbox_of(argv: Sequence[str]) -> str:
    """Return the sandbox that the flags in *argv* name; empty if they name none."""
    from kasmon.backends.codex.cli_flags import parse_flags  # likewise

    try:
        return str(parse_flags(argv[1:]).thread.get("sandbox", ""))
    except LaunchError:
        return ""


def _acp(mode: str, to: Mode) -> str:
    return mode if to is Mode.SDK else ""


def _remove_flags(argv: Sequence[str], flags: dict[str, int]) -> tuple[str, ...]:
    """Return *argv* without *flags*, each with its number of words; a value may also be joined with `=`."""
    left: list[str] = []
    at = 0
    while at < len(argv):
        flag, is_joined, _ = argv[at].partition("=")
        if flag not in flags:
            left.append(argv[at])
        at += flags[flag] if flag in flags and not is_joined else 1
    return tuple(left)
