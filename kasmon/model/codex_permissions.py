"""How much codex asks, and what its commands may do, in the words of its rollout. Pure."""

from typing import Final, NamedTuple

PLAN: Final = "plan"
"""The permission mode that kasmon makes of codex's collaboration mode of that name."""


class CodexPermissions(NamedTuple):
    """How much codex asks, and what its commands may do; empty is not known."""

    policy: str = ""
    """The approval policy: `untrusted`, `on-request`, `never`; or `granular`, which has no name."""
    sandbox: str = ""
    """`read-only`, `workspace-write` or `danger-full-access`; empty also where it changed since the last turn."""
    is_planning: bool = False
    read_to: int = 0
    """Up to which byte the file was looked through."""

    @property
    def mode(self) -> str:
        """In one word, as for a structured session."""
        return PLAN if self.is_planning else self.policy
