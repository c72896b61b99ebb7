"""`kasmon --version --json`."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from kasmon import __version__
from kasmon.cli.doctor.version import find_extras, find_tools
from tests.support.cli.cli_runner import Cli
from tests.support.syntax_trees import ROOT


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_it_names_the_extras_and_the_tools_that_are_here(kasmon: Cli) -> None:
    said = json.loads(kasmon("--version", "--json").out)

    assert (1, __version__) == (said["schema"], said["version"])
    assert said["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras.keys() - {"all", "dev"} == said["extras"].keys()
    assert said["extras"]["acp"]["installed"]
    assert (
        said["tools"]["git"]["version"] in subprocess.run(["git", "--version"], capture_output=True, text=True).stdout
    )
    assert {"tmux", "git", "nats-server", "claude", "codex", "gemini", "opencode"} <= said["tools"].keys()


def test_an_extra_is_missing_if_one_of_its_packages_is() -> None:
    found = find_extras(["pytest>=8", "pytest<99; extra == 'mine'", "no-such-thing>1; extra == 'mine'"])

    assert ["mine"] == list(found)
    assert not found["mine"]["installed"]
    assert found["mine"]["packages"]["no-such-thing"] is None
    assert found["mine"]["packages"]["pytest"]


def test_a_program_that_hangs_or_fails_has_no_version_and_the_others_have(tmp_path: Path) -> None:
    program(tmp_path, "good", "echo 'good 1.2.3 (x)'")
    program(tmp_path, "bad", "echo 9.9.9; exit 3")
    program(tmp_path, "slow", "exec sleep 600")
    package = tmp_path / "lib/node_modules/@org/agent"
    (package / "bin").mkdir(parents=True)
    program(package / "bin", "agent.js", "exec sleep 600")
    (package / "package.json").write_text('{"name": "agent", "version": "4.5.6"}')
    (tmp_path / "agent").symlink_to(package / "bin/agent.js")
    names = ("good", "bad", "slow", "agent", "absent")

    found = find_tools({name: name for name in names}, {"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert ["1.2.3", None, None, "4.5.6", None] == [found[name]["version"] for name in names]
    assert [name for name in names if found[name]["path"] is None] == ["absent"]
