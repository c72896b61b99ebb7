"""Which version of an agent is there: told where it does not speak as kasmon expects."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kasmon.agents.catalog import find
from kasmon.backends.common.agent_version import advice, explain_unfit, find_version, refuse_in_terminal
from kasmon.errors import LaunchError, UnfitAgentError
from tests.support.wait import until

PINS = Path(__file__).parents[2] / "agents" / "package.json"

PATH = {"PATH": "/usr/bin:/bin"}


def program(folder: Path, script: str, name: str = "codex") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.50.1", "This is codex 0.50.1; kasmon was tested with 0.171.0. `npm install -g @openai/codex@latest`"),
        ("0.171.0", "This is codex 0.171.0, which kasmon was tested with: check the profile's flags"),
        (
            "1.2.3-beta",
            "This is codex 1.2.3-beta, and kasmon was tested with 0.171.0: update kasmon, or install that version",
        ),
        ("", "'codex' does not report its version; kasmon was tested with 0.171.0. `npm install"),
    ],
)
def test_advice_names_the_installed_version_the_supported_one_and_the_fix(version: str, words: str) -> None:
    assert advice("codex", version).startswith(words)


def test_for_an_unknown_agent_only_the_version_is_reported() -> None:
    assert ("This is gander 1.9.2.", "") == (advice("gander", "1.9.2"), advice("gander", ""))


def test_the_versions_reported_as_tested_are_those_that_tests_use() -> None:
    pins = json.loads(PINS.read_text())["dependencies"]
    tried = {package: find(package.rpartition("/")[2]).tried for package in pins}

    assert pins == tried


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo codex-cli 0.50.1", "0.50.1"),
        ("echo '1.18.33'", "1.18.33"),
        ('[ "$1" = --version ] && echo "2.1.7 (Claude Code)"', "2.1.7"),
        ("echo no such option >&2; exit 2", ""),
        ("yes 1", ""),
        ("printf '\\033]0;x\\007 1.2'", ""),
    ],
)
async def test_the_version_comes_from_the_program_itself(tmp_path: Path, script: str, version: str) -> None:
    assert version == await find_version((program(tmp_path, script), "--flag"), str(tmp_path), PATH)


async def test_a_program_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    assert "" == await find_version((program(tmp_path, "sleep 60 & wait"),), str(tmp_path), PATH, 0.1)
    assert "" == await find_version((str(tmp_path / "none"),), str(tmp_path), {})


def test_a_program_that_hangs_ends_with_its_caller_also_if_that_is_killed(tmp_path: Path) -> None:
    script = program(tmp_path, f"sleep 600 & echo $$ $! > {tmp_path}/pids; wait")
    asks = (
        f"from kasmon.backends.common.agent_version import answer; answer(['{script}', '--version'], '/', {{}}, 600.0)"
    )
    asker = subprocess.Popen([sys.executable, "-P", "-c", asks])
    told = tmp_path / "pids"
    pids = until(lambda: told.read_text().split() if told.exists() else [], what="it runs")

    asker.kill()
    asker.wait()

    until(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), what="the end of all it started")


async def test_behind_a_runner_the_agents_version_is_read(tmp_path: Path) -> None:
    argv = (program(tmp_path, 'echo "$1" 0.3.9', "npx"), "@google/gemini-cli", "--acp")

    error = await explain_unfit(UnfitAgentError("it is odd.", hint="Sorry."), "acp", argv, str(tmp_path), {})
    assert str(error).startswith("it is odd. Sorry. This is gemini 0.3.9; kasmon was tested with 0.61.0.")


@pytest.mark.parametrize("version", ["2.0.0", "opencode 2.1.3"])
def test_a_version_whose_screens_are_unknown_is_refused_in_a_terminal(tmp_path: Path, version: str) -> None:
    path = program(tmp_path, f"echo {version}", "opencode")

    with pytest.raises(LaunchError, match=r"opencode 2\.\S+ cannot run in a terminal session") as caught:
        refuse_in_terminal((path,), "opencode")
    assert "--agent opencode --mode sdk" in caught.value.hint


@pytest.mark.parametrize("script", ["echo 1.18.33", "exit 1", "echo no version"])
def test_a_tested_version_or_none_is_not_refused(tmp_path: Path, script: str) -> None:
    refuse_in_terminal((program(tmp_path, script, "opencode"),), "opencode")
    refuse_in_terminal((program(tmp_path, "echo 99.0.0", "gander"),), "gander")
