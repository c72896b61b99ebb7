"""`kasmon --version --json`: this kasmon, its extras and the programs that it uses, as found on this machine.

The programs report their versions at the same time. Those of npm's packages are read from the package instead: to
start node for it takes longer than all others together.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any, Final

from kasmon import __version__, system
from kasmon.bus.nats.server import list_candidates
from kasmon.config import load
from kasmon.errors import KasmonError
from kasmon.model.agent_program import SHELLS
from kasmon.paths import user_paths

TOOLS: Final = ("tmux", "git", "ssh", "gh", "glab", "bwrap", "qemu-img")
OPTIONS: Final = {"tmux": "-V", "ssh": "-V"}
"""How a program is asked for its version, if not by `--version`."""
EXTRA: Final = re.compile(r"""^([\w.-]+).*;.*extra\s*==\s*["']([\w-]+)["']""")
NUMBER: Final = re.compile(r"\d+\.\d+(?:\.\d+)*[a-z]?\d*")
LIMIT_S: Final = 2.0
"""How long all programs together may take to report their versions, in seconds."""
ANSWER_BYTES: Final = 4096


def print_report(environment: Mapping[str, str] = os.environ) -> int:
    """Print one JSON object with `version`, `python`, `system`, `extras` and `tools`; return the exit code.

    An extra has `installed` and its `packages` with their versions. A tool has `path` and `version`, null if it is not
    installed or reports none.
    """
    names = {name: name for name in TOOLS} | {"tmux": environment.get("KASMON_TMUX") or "tmux"} | _agents()
    names["nats-server"] = next(iter(list_candidates()), "nats-server")
    report = {
        "schema": 1,
        "version": __version__,
        "python": platform.python_version(),
        "system": {"name": system.HERE.npm_name, "machine": platform.machine()},
        "extras": find_extras(metadata_of("kasmon")),
        "tools": find_tools(names, environment),
    }
    print(json.dumps(report, indent=2))
    return 0


def metadata_of(package: str) -> list[str]:
    """Return the requirements of *package*; empty if it is not installed."""
    try:
        return metadata(package).get_all("Requires-Dist") or []
    except PackageNotFoundError:
        return []


def find_extras(requirements: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the extras that *requirements* declare, with the versions of their packages, null where one is missing."""
    found: dict[str, dict[str, Any]] = {}
    for line in requirements:
        if (match := EXTRA.match(line)) is None or match[2] in ("dev", "all"):
            continue
        packages = found.setdefault(match[2], {"installed": True, "packages": {}})
        if match[1] != "kasmon":
            number = _version_of(match[1])
            packages["packages"][match[1]] = number
            packages["installed"] &= number is not None
    return found


def find_tools(programs: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    """Return where each of *programs* (by name) is and its version. Blocks for `LIMIT_S` at most."""
    where = {name: shutil.which(program, path=environment.get("PATH")) for name, program in programs.items()}
    found = {name: {"path": path, "version": _packaged_version(path)} for name, path in where.items()}
    asked = {}
    for name, path in where.items():
        if path is not None and found[name]["version"] is None:
            argv = [path, OPTIONS.get(name, "--version")]
            out, both = subprocess.PIPE, subprocess.STDOUT
            try:
                asked[name] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=both, cwd="/", start_new_session=True
                )
            except OSError:
                continue
    until = time.monotonic() + LIMIT_S
    for name, process in asked.items():
        try:
            output = process.communicate(timeout=max(0.0, until - time.monotonic()))[0][:ANSWER_BYTES]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            continue
        number = NUMBER.search(output.decode("utf-8", "replace"))
        found[name]["version"] = number[0] if number and process.returncode == 0 else None
    return found


def _agents() -> dict[str, str]:
    """Return the programs of the agents in the config, by agent; of the default ones if it is not valid."""
    try:
        config = load(user_paths())
    except KasmonError:
        from kasmon.config.parser import parse

        config = parse("", "")
    return {
        name: profile.program
        for name, profile in config.agents.items()
        if profile.enabled
        and profile.program
        and name not in ("scripted", "shell")
        and Path(profile.program).name not in SHELLS
    }


def _packaged_version(path: str | None) -> str | None:
    """Return the version in the npm package that *path* belongs to; None if it is in none."""
    if path is None:
        return None
    real = Path(path).resolve()
    for folder in list(real.parents)[:4]:
        if "node_modules" in folder.parts and (folder / "package.json").is_file():
            try:
                version = json.loads((folder / "package.json").read_bytes())["version"]
            except (OSError, ValueError, KeyError, TypeError):
                return None
            return version if isinstance(version, str) and NUMBER.match(version) else None
    return None


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
