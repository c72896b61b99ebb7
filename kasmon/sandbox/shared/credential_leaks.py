"""Finds values of credentials that code in a sandbox stored elsewhere, after kasmon removed them."""

from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import InspectableTier, SandboxTier
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.credentials import CredentialFindings

PROC: Final = "/proc"
TOLD: Final = 5
"""How many places are listed."""


class CredentialLeaks:
    """Searches one sandbox. Each search reads what changed since the one before."""

    def __init__(self) -> None:
        self._searches: dict[str, credentials.CredentialSearch] = {}

    def in_files(self, folder: str, findings: CredentialFindings, mapped: Callable[[], Container[int]]) -> list[str]:
        """Return the files below *folder* that contain a value, each with the credential's name."""
        search = self._searches.setdefault(folder, credentials.CredentialSearch())
        return [f"{path} ({name})" for path, name in search.files_with(Path(folder), findings, mapped)]

    def beside_them(
        self, tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime, findings: CredentialFindings
    ) -> list[str]:
        """Return where values are outside the workspace: files in memory and in the home, and initial environments.

        Empty if there are no values, or the tier is not inspectable.
        """
        if not findings.secrets or not isinstance(tier, InspectableTier):
            return []
        found = []
        for place, folder in tier.folders(policy, runtime).items():
            if folder.is_relative_to(PROC):  # older kernels do not update the time of in-memory files at such a write
                self._searches.pop(str(folder), None)
            files = self.in_files(str(folder), findings, find_mapped_inodes(tier, policy, runtime))
            found += [f"{place}/{file}" for file in files]
        for process, environ in tier.environments(policy, runtime):
            if names := credentials.holders(environ, findings):
                found.append(f"the environment of {process} ({names[0]})")
        return found


def find_mapped_inodes(
    tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime | None
) -> Callable[[], Container[int]]:
    """Return a function for the inodes that processes inside write through shared memory; none if unavailable."""
    if runtime is None or not isinstance(tier, InspectableTier):
        return frozenset
    return lambda: tier.mapped(policy, runtime)


def format_places(places: list[str]) -> str:
    """Return the first `TOLD` of *places* as text."""
    return ", ".join(places[:TOLD]) + (f" and {len(places) - TOLD} more" if len(places) > TOLD else "")
