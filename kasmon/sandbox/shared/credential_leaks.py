"""Where the value of a credential stands in a sandbox that kasmon took it out of: what code wrote down itself."""

from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import InspectableTier, SandboxTier
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.credentials import CredentialFindings

PROC: Final = "/proc"
TOLD: Final = 5
"""So many places are named."""


class CredentialLeaks:
    """The places of one sandbox. Each look goes into what changed since the one before it."""

    def __init__(self) -> None:
        self._searches: dict[str, credentials.CredentialSearch] = {}

    def in_files(self, folder: str, looked: CredentialFindings, mapped: Callable[[], Container[int]]) -> list[str]:
        """The files below *folder* that hold a value, each with the credential's name."""
        search = self._searches.setdefault(folder, credentials.CredentialSearch())
        return [f"{path} ({name})" for path, name in search.files_with(Path(folder), looked, mapped)]

    def beside_them(
        self, tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime, looked: CredentialFindings
    ) -> list[str]:
        """What holds a value beside the workspace: files in memory and in the home, and what processes began with.

        Nothing where there are no values, or the tier cannot be looked into.
        """
        if not looked.secrets or not isinstance(tier, InspectableTier):
            return []
        found = []
        for place, folder in tier.folders(policy, runtime).items():
            if folder.is_relative_to(PROC):  # of what is in memory, older kernels note no time at such a write
                self._searches.pop(str(folder), None)
            files = self.in_files(str(folder), looked, mapped(tier, policy, runtime))
            found += [f"{place}/{file}" for file in files]
        for process, environ in tier.environments(policy, runtime):
            if names := credentials.holders(environ, looked):
                found.append(f"the environment of {process} ({names[0]})")
        return found


def mapped(tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime | None) -> Callable[[], Container[int]]:
    """What tells which files somebody inside writes to as to memory; none where the tier cannot tell."""
    if runtime is None or not isinstance(tier, InspectableTier):
        return frozenset
    return lambda: tier.mapped(policy, runtime)


def told(places: list[str]) -> str:
    """*places* in words, the first `TOLD` of them."""
    return ", ".join(places[:TOLD]) + (f" and {len(places) - TOLD} more" if len(places) > TOLD else "")
