"""How often codex asks for approval, and what its commands may do, as its rollout file names it. Pure."""

from typing import Final, NamedTuple

PLAN: Final = "plan"
"""The permission mode that stands for codex's collaboration mode of that name."""


class CodexPermissions(NamedTuple):
    """How often codex asks for approval, and what its commands may do; empty means unknown."""

    policy: str = ""
    """The approval policy: `untrusted`, `on-request`, `never`; or `granular`, which has no name."""
    sandbox: str = ""
    """`read-only`, `workspace-write` or `danger-full-access`; empty also where it changed since the last turn."""
    is_planning: bool = False
    read_to: int = 0
    """Up to which byte the file was read."""

    @property
    def mode(self) -> str:
        """Return the permission mode in one word, as for a structured session."""
        return PLAN if self.is_planning else self.policy
