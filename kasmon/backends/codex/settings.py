"""Codex's settings: its model and its permission mode, which combines approval policies and plan mode."""

from typing import Final

import msgspec

from kasmon.backends.common.json_access import Table, text
from kasmon.errors import RefusedError

PLAN: Final = "plan"
"""Codex makes a plan and changes nothing; codex calls this a collaboration mode."""
POLICIES: Final = ("untrusted", "on-request", "never")
"""Codex's named approval policies."""
MODES: Final = (PLAN, *POLICIES)


class CodexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that codex reported last."""

    model: str = ""
    policy: str = ""
    is_planning: bool = False
    effort: str | None = None

    @property
    def permission_mode(self) -> str:
        """The permission mode: plan mode or the approval policy."""
        return PLAN if self.is_planning else self.policy


def settings(reported: Table) -> CodexSettings:
    """Return the settings in *reported*: the response that opens a thread, or thread/settings/updated."""
    policy = reported.get("approvalPolicy")
    return CodexSettings(
        model=text(reported, "model"),
        policy=policy if isinstance(policy, str) else "granular" if policy else "",
        is_planning=text(reported, "collaborationMode", "mode") == PLAN,
        effort=text(reported, "effort") or text(reported, "reasoningEffort") or None,
    )


def change(now: CodexSettings, model: str | None, permission_mode: str | None) -> Table:
    """Return the parameters for thread/settings/update that change *now* as requested; empty if nothing changes.

    Raises:
        RefusedError: if there is no such mode.
    """
    changes: Table = {"model": model} if model else {}
    planning = now.is_planning
    if permission_mode:
        if permission_mode not in MODES:
            raise RefusedError(
                f"codex has no permission mode {permission_mode!r}.", hint=(f"Available: {', '.join(MODES)}.")
            )
        planning = permission_mode == PLAN
        if not planning:
            changes["approvalPolicy"] = permission_mode
    if planning or now.is_planning:
        changes["collaborationMode"] = _collaboration(now, model or now.model, planning=planning)
    return changes


def planned(now: CodexSettings) -> Table:
    """Return the parameters for thread/settings/update that only end plan mode."""
    return {"collaborationMode": _collaboration(now, now.model, planning=False)}


def _collaboration(now: CodexSettings, model: str, *, planning: bool) -> Table:
    """Return codex's collaboration mode; for null instructions, codex uses its own for that mode."""
    reported = {"model": model, "reasoning_effort": now.effort, "developer_instructions": None}
    return {"mode": PLAN if planning else "default", "settings": reported}
