"""What gemini would load from a project, and where it stores whether its user trusts the project (0.61).

Trust is `trustedFolders.json` beside its settings: the longest path that contains the folder decides. A folder that the
user explicitly distrusts needs no question: gemini then loads nothing of the project.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kasmon.backends.project_trust.project_files import UntrustedProject, entries, settings, table, texts

HARMLESS: Final = frozenset({"$schema", "context", "general", "model", "output", "privacy", "ui"})
"""Keys of settings that run nothing."""
FLAG: Final = "--skip-trust"
TRUST: Final = "GEMINI_CLI_TRUST_WORKSPACE"
RUNNING: Final = re.compile(r"!\{")
ANY: Final = re.compile("")


def find_untrusted(flags: Sequence[str], workdir: str, variables: Mapping[str, str]) -> UntrustedProject | None:
    """Return why gemini should not start in *workdir*; None if it would load nothing or the user has decided."""
    folder = Path(os.path.realpath(workdir))
    own = Path(variables.get("GEMINI_CLI_HOME") or variables.get("HOME", "/")) / ".gemini"
    if FLAG in flags or variables.get(TRUST) in ("true", "false") or variables.get("GEMINI_RESTRICTED_MODE") == "true":
        return None
    if os.path.realpath(folder / ".gemini") == os.path.realpath(own):
        return None
    things = tuple(_things(folder / ".gemini"))
    if not things or _is_decided(folder, own):
        return None
    return UntrustedProject(
        folder=str(folder),
        things=things,
        fix="Review that. To decide, start `gemini` there once in a terminal (`--mode tmux`), or set "
        f'{str(folder)!r} to "TRUST_FOLDER" or "DO_NOT_TRUST" in {str(own / "trustedFolders.json")!r}; '
        f"`{FLAG}` in the profile's flags trusts every folder.",
    )


def _things(brought: Path) -> Iterator[str]:
    if not brought.exists():
        return
    yield from settings(brought / "settings.json", ".gemini/settings.json", HARMLESS)
    yield from texts(brought / "commands", ".gemini/commands", ".toml", RUNNING.search)
    yield from texts(brought / "agents", ".gemini/agents", ".md", ANY.match)
    yield from texts(brought / "extensions", ".gemini/extensions", "gemini-extension.json", ANY.match)
    yield from texts(brought / "policies", ".gemini/policies", ".toml", ANY.match)


def _is_decided(folder: Path, own: Path) -> bool:
    """Whether the user has trusted or distrusted the folder, or has disabled folder trust."""
    security = entries(table(own / "settings.json"), "security")
    if entries(security, "folderTrust").get("enabled") is False:
        return True
    for path, level in (table(own / "trustedFolders.json") or {}).items():
        place = Path(path).parent if level == "TRUST_PARENT" else Path(path)
        if level in ("TRUST_FOLDER", "TRUST_PARENT", "DO_NOT_TRUST") and folder.is_relative_to(os.path.realpath(place)):
            return True
    return False
