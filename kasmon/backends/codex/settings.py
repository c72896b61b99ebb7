"""How codex runs: its model, and how much it asks. Of its approval policies and its plan mode kasmon makes one list."""

from typing import Final

import msgspec

from kasmon.backends.common.json_access import Table, text
from kasmon.errors import RefusedError

PLAN: Final = "plan"
"""Codex makes a plan and changes nothing; a collaboration mode, in its words."""
POLICIES: Final = ("untrusted", "on-request", "never")
"""Codex's approval policies that have a name."""
MODES: Final = (PLAN, *POLICIES)


class CodexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What codex said last of how it runs."""

    model: str = ""
    policy: str = ""
    is_planning: bool = False
    effort: str | None = None

    @property
    def permission_mode(self) -> str:
        """How much it asks, by the one list that kasmon makes of its approval policies and its plan mode."""
        return PLAN if self.is_planning else self.policy


def settings(told: Table) -> CodexSettings:
    """What *told* says: the response that opens a thread, or the settings in thread/settings/updated."""
    policy = told.get("approvalPolicy")
    return CodexSettings(
        model=text(told, "model"),
        policy=policy if isinstance(policy, str) else "granular" if policy else "",
        is_planning=text(told, "collaborationMode", "mode") == PLAN,
        effort=text(told, "effort") or text(told, "reasoningEffort") or None,
    )


def change(now: CodexSettings, model: str | None, permission_mode: str | None) -> Table:
    """The parameters for thread/settings/update that change *now* as asked; empty where nothing is.

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
    """The parameters for thread/settings/update that end plan mode; all else stays."""
    return {"collaborationMode": _collaboration(now, now.model, planning=False)}


def _collaboration(now: CodexSettings, model: str, *, planning: bool) -> Table:
    """Codex's collaboration mode; with null it uses its own instructions for that mode."""
    told = {"model": model, "reasoning_effort": now.effort, "developer_instructions": None}
    return {"mode": PLAN if planning else "default", "settings": told}
