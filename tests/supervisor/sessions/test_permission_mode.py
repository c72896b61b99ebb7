"""How much an agent asks goes with it over a move, by the flags of its program; or it is said why it does not."""

import pytest

from kasmon.model.codex_permissions import CodexPermissions
from kasmon.model.commands import Mode
from kasmon.supervisor.sessions.permission_mode import problem_of, translate

READ, WRITE, FULL = "read-only", "workspace-write", "danger-full-access"
T, S = Mode.TMUX, Mode.SDK


@pytest.mark.parametrize(
    ("argv", "mode", "to", "carried"),
    [
        ("claude", "default", T, "claude --permission-mode default"),
        ("claude", "auto", S, "claude --permission-mode auto"),
        ("claude --model m --permission-mode plan", "default", T, "claude --model m --permission-mode default"),
        ("claude --permission-mode=plan", "acceptEdits", S, "claude --permission-mode acceptEdits"),
        ("claude --dangerously-skip-permissions", "default", T, "claude --permission-mode default"),
        ("gemini", "autoEdit", T, "gemini --approval-mode auto_edit"),
        ("gemini --yolo", "default", T, "gemini --approval-mode default"),
        ("gemini --acp -y", "plan", S, "gemini --acp"),
        ("opencode", "plan", T, "opencode --agent plan"),
        ("opencode acp --agent build", "plan", S, "opencode acp"),
    ],
)
def test_the_mode_in_force_replaces_that_of_the_profile(argv: str, mode: str, to: Mode, carried: str) -> None:
    found = translate(argv.split()[0], argv.split(), mode, to)

    assert ("", carried) == (found.problem, " ".join(found.argv))
    by_protocol = to is S and argv.split()[0] in ("gemini", "opencode")
    assert (mode if by_protocol else "") == found.permission_mode


REVIEWED = "codex --approve-for-me"


@pytest.mark.parametrize(
    ("argv", "mode", "told", "to", "carried", "own"),
    [
        ("codex", "on-request", CodexPermissions("on-request", READ), T, "codex -a on-request -s read-only", ""),
        ("codex -a never", "on-request", CodexPermissions("never", WRITE), S, f"codex -a on-request -s {WRITE}", ""),
        ("codex --yolo", "on-request", CodexPermissions(), T, f"codex -a on-request -s {FULL}", ""),
        ("codex --sandbox=read-only", "never", CodexPermissions(), T, "codex -a never -s read-only", ""),
        ("codex", "untrusted", CodexPermissions("untrusted", READ), S, "codex -a untrusted -s read-only", ""),
        ("codex", "plan", CodexPermissions("never", READ, True), S, "codex -a never -s read-only", "plan"),
        (REVIEWED, "on-request", CodexPermissions("on-request", WRITE), T, REVIEWED, ""),
    ],
)  # fmt: skip
def test_policy_and_sandbox_of_codex_are_kept(
    argv: str, mode: str, told: CodexPermissions, to: Mode, carried: str, own: str
) -> None:
    found = translate("codex", argv.split(), mode, to, told)

    assert ("", carried, own) == (found.problem, " ".join(found.argv), found.permission_mode)


@pytest.mark.parametrize(
    ("argv", "mode", "told", "to", "why", "carried"),
    [
        ("claude", "", None, T, "did not report its permission mode", "claude"),
        ("opencode --auto", "build", None, S, "in terminals only", "opencode"),
        ("codex", "", CodexPermissions(), T, "did not report its approval policy", "codex"),
        (
            "codex",
            "untrusted",
            CodexPermissions("untrusted", READ),
            T,
            "'untrusted'",
            "codex -a on-request -s read-only",
        ),
        ("codex", "granular", CodexPermissions("granular", READ), S, "'granular' only from its config", "codex"),
        (
            "codex",
            "plan",
            CodexPermissions("on-request", READ, True),
            T,
            "plan mode",
            "codex -a on-request -s read-only",
        ),
        ("codex", "never", CodexPermissions("never"), S, "the sandbox of its commands", "codex -a never"),
        ("other", "strict", None, T, "'other'", "other"),
    ],
)
def test_a_setting_that_cannot_be_kept_is_reported_with_its_reason(
    argv: str, mode: str, told: CodexPermissions | None, to: Mode, why: str, carried: str
) -> None:
    """And who agrees gets what asks most of what there is."""
    found = translate(argv.split()[0], argv.split(), mode, to, told)

    assert why in found.problem
    assert carried == " ".join(found.argv)


def test_the_move_dialog_warns_by_the_mode_alone() -> None:
    assert "" == problem_of("claude", "default", T)
    assert "did not report" in problem_of("claude", "", T)
    assert "'untrusted'" in problem_of("codex", "untrusted", T)
    assert "" == problem_of("codex", "untrusted", S)
    assert "plan mode" in problem_of("codex", "plan", T)
    assert "" == problem_of("bash", "", S)
