"""`make agents`: the real Makefile and install script, with an npm and a node that only note how they were called."""

import shutil
from pathlib import Path

import pytest

from tests.support.agents.real_agent import ROOT
from tests.test_setup import Clone

NPM = """
here=node_modules/.bin
mkdir -p $here node_modules/@anthropic-ai/claude-code node_modules/opencode-ai
for agent in claude codex gemini opencode; do touch $here/$agent; done
"""


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A fresh clone, on a machine with node."""
    clone = Clone(tmp_path)
    shutil.copytree(ROOT / "tests" / "agents", clone.tree / "tests" / "agents")
    clone.program("node", 'case "$*" in --version) echo v20.1.0 ;; esac')
    clone.ready()
    return clone


def programs(clone: Clone) -> list[str]:
    return sorted(file.name for file in (clone.tree / ".cache/agents/node_modules/.bin").iterdir())


def test_the_pinned_agents_are_installed_and_their_install_scripts_run_by_hand(clone: Clone) -> None:
    clone.program("npm", NPM)

    assert 0 == clone.run("make", "agents").returncode
    npm, *scripts = clone.calls
    assert npm.startswith("npm install --ignore-scripts ")
    assert "node node_modules/@anthropic-ai/claude-code/install.cjs" in scripts
    assert "node postinstall.mjs" in scripts
    assert ["claude", "codex", "gemini", "opencode"] == programs(clone)
    for name in ("package.json", "package-lock.json"):
        pins = clone.tree / "tests" / "agents" / name
        assert pins.read_text() == (clone.tree / ".cache/agents" / name).read_text()


def test_the_second_time_nothing_is_installed(clone: Clone) -> None:
    clone.program("npm", NPM)
    clone.run("make", "agents")
    called = clone.calls

    assert 0 == clone.run("make", "agents").returncode
    assert called == clone.calls


def test_removed_agents_are_installed_again(clone: Clone) -> None:
    clone.program("npm", NPM)
    clone.run("make", "agents")
    shutil.rmtree(clone.tree / ".cache/agents/node_modules")

    assert 0 == clone.run("make", "agents").returncode
    assert ["claude", "codex", "gemini", "opencode"] == programs(clone)


@pytest.mark.parametrize(
    ("program", "agent", "why"),
    [
        ('case "$*" in *install.cjs) exit 1 ;; esac', "claude", "its install script failed"),
        ('case "$*" in *postinstall.mjs) exit 1 ;; esac', "opencode", "its install script failed"),
        (
            'case "$*" in --version) echo v18.20.4 ;; -e*) exit 1 ;; esac',
            "gemini",
            "it needs node 20 or newer, here is v18.20.4",
        ),
    ],
    ids=["claude", "opencode", "gemini"],
)
def test_an_agent_that_cannot_run_is_uninstalled_with_the_reason(
    clone: Clone, program: str, agent: str, why: str
) -> None:
    clone.program("npm", NPM)
    clone.program("node", program)

    said = clone.run("make", "agents")

    assert 0 == said.returncode
    assert f"{agent} cannot be used: {why}" in said.stderr.splitlines()
    assert {"claude", "codex", "gemini", "opencode"} - {agent} == set(programs(clone))


def test_a_failed_installation_is_retried(clone: Clone) -> None:
    clone.program("npm", "exit 1")
    assert 0 != clone.run("make", "agents").returncode

    clone.program("npm", NPM)
    assert 0 == clone.run("make", "agents").returncode


def test_root_gets_the_npm_that_is_missing(clone: Clone) -> None:
    clone.program("tests/npm", NPM)
    clone.program("id", "echo 0")
    clone.program("apt-get", f'if [ "$1" = install ]; then cp tests/npm {clone.bin}/npm; fi')

    assert 0 == clone.run("make", "agents").returncode
    assert "apt-get install -y npm" in clone.calls
    assert ["claude", "codex", "gemini", "opencode"] == programs(clone)


def test_without_npm_one_line_shows_what_to_type(clone: Clone) -> None:
    clone.program("id", "echo 1000")
    clone.program("sudo", "exit 1")
    clone.program("apt-get")

    said = clone.run("make", "agents")

    assert 0 != said.returncode
    assert (
        "npm is missing: it installs the agents that these tests drive (sudo apt-get install -y npm; node 20 or newer)."
    ) in said.stderr.splitlines()


STATES = "tests/agents/terminal/test_evidence.py"
AGENT_TESTS = (
    "python -P -m pytest -o cache_dir=.cache/agents-pytest -n 3 --dist worksteal -m agents -o timeout=180 "
    f"--ignore={STATES} tests/agents"
)
STATE_TESTS = f"python -P -m pytest -o cache_dir=.cache/states-pytest -n 3 --dist worksteal -m agents {STATES}"
FAILS_BESIDE_OTHERS = """
case "$*" in
*--last-failed*) exit "${ALONE-0}" ;;
*"-n 3"*)
    mkdir -p .cache/agents-pytest/v/cache
    echo '"tests/agents/test_a.py::test_it": true' >.cache/agents-pytest/v/cache/lastfailed
    exit 1 ;;
esac
"""
"""A pytest in which one test fails beside others, and ends alone as `$ALONE` says."""


def test_tests_of_agents_require_claude_and_codex_by_default(clone: Clone) -> None:
    clone.program("npm", NPM)
    clone.program("tmux")
    clone.program(
        ".venv/bin/python", 'case "$*" in *pytest*) echo "asks for $KASMON_REQUIRE_AGENTS" >>"$CALLS" ;; esac'
    )

    clone.run("make", "test-agents")
    clone.environ["KASMON_REQUIRE_AGENTS"] = "all"
    clone.run("make", "test-agents")

    assert AGENT_TESTS in clone.calls
    assert ["asks for claude,codex", "asks for all"] == [call for call in clone.calls if call.startswith("asks")]


def test_agents_of_another_folder_start_no_installation(clone: Clone) -> None:
    clone.program("tmux")
    clone.environ["KASMON_AGENT_BIN_DIR"] = "/elsewhere"

    assert 0 == clone.run("make", "test-agents").returncode
    assert [AGENT_TESTS] == clone.calls


def test_the_states_of_agents_are_compared_with_the_real_ones_by_a_target_of_their_own(clone: Clone) -> None:
    clone.program("tmux")
    clone.environ["KASMON_AGENT_BIN_DIR"] = "/elsewhere"

    assert 0 == clone.run("make", "test-states").returncode
    assert [STATE_TESTS, "python -P -m tests.support.detection.confusion_matrix golden live"] == clone.calls
    assert (ROOT / STATES).exists()


def test_a_test_that_fails_beside_another_agent_must_pass_alone(clone: Clone) -> None:
    clone.program("tmux")
    clone.environ["KASMON_AGENT_BIN_DIR"] = "/elsewhere"
    clone.program(".venv/bin/python", FAILS_BESIDE_OTHERS)

    assert 0 == clone.run("make", "test-agents").returncode
    clone.environ["ALONE"] = "1"
    assert 0 != clone.run("make", "test-agents").returncode
