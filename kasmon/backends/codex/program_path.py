"""Find codex's program and process: npm puts a node script on PATH, and the native agent beside it."""

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from kasmon import system
from kasmon.errors import AgentNotFoundError

MACHINES: Final = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
"""The system's name of a processor -> npm's."""
RUNNERS: Final = frozenset({"node", "nodejs", "bun", "deno"})
"""Programs that run the script, and start the agent as their child."""


def find_program(agent: str, program: str, variables: Mapping[str, str]) -> str:
    """Return the path to start for *program*: the native agent if it is found, else *program* itself.

    Raises:
        AgentNotFoundError: if *program* does not exist.
    """
    path = shutil.which(program, path=variables.get("PATH", os.defpath))
    if path is None:
        raise AgentNotFoundError(agent, program)
    return str(_native(Path(path)) or path)


def speaker(pid: int) -> int:
    """Return the pid of the agent itself, started as *pid*: a script's first child, or *pid* itself."""
    try:
        process = psutil.Process(pid)
        if process.name() in RUNNERS and (children := process.children()):
            return int(children[0].pid)
    except psutil.Error:
        pass
    return pid


def _native(path: Path) -> Path | None:
    """Return the agent behind npm's script at *path*, in the package for this machine."""
    script = path.resolve()
    if script.suffix != ".js":
        return None
    machine = MACHINES.get(platform.machine().lower(), "")
    package = script.parent.parent
    for folder in (package.parent, package / "node_modules" / "@openai"):
        for native in sorted(folder.glob(f"codex-{system.HERE.npm_name}-{machine}/vendor/*/bin/codex")):
            if os.access(native, os.X_OK):
                return native
    return None
