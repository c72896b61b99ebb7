"""How a test finds a real agent, and what it may not leave behind. No agent is needed here."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from kasmon.backends.common.environment import build_environment
from tests.support.agents.real_agent import (
    PACKAGES,
    RealAgent,
    agent_binary,
    find,
    nothing_is_left,
    pinned_version,
    settled,
)

NATIVE = "codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"


def program(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o755)
    return file


def test_an_agent_that_is_not_installed_skips_the_test_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KASMON_REQUIRE_AGENTS", "claude,codex")

    with pytest.raises(pytest.skip.Exception, match="'nobody' is not installed: run `make agents`"):
        agent_binary("nobody")


@pytest.mark.parametrize("required", ["nobody", "claude, nobody", "all"])
def test_a_required_agent_that_is_missing_fails_the_test(monkeypatch: pytest.MonkeyPatch, required: str) -> None:
    monkeypatch.setenv("KASMON_REQUIRE_AGENTS", required)

    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="asks for it") as raised:
        agent_binary("nobody")
    assert pytest.fail.Exception is raised.type


def test_a_named_folder_has_priority_over_the_installed_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KASMON_AGENT_BIN_DIR", str(tmp_path))

    assert program(tmp_path / "claude") == find("claude")


@pytest.mark.parametrize("inside", ["@openai", "@openai/codex/node_modules/@openai"], ids=["beside", "nested"])
def test_codex_is_the_native_program_behind_its_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inside: str
) -> None:
    script = program(tmp_path / "node_modules" / "@openai" / "codex" / "bin" / "codex.js")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(script)
    monkeypatch.setenv("KASMON_AGENT_BIN_DIR", str(tmp_path / "bin"))
    assert tmp_path / "bin" / "codex" == find("codex")

    native = program(tmp_path / "node_modules" / inside / NATIVE)
    assert native == find("codex")


def test_every_agent_has_one_pinned_version() -> None:
    assert all(pinned_version(name).replace(".", "").isdecimal() for name in PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_kasmon_gives_an_agent_what_makes_it_call_the_stub(name: str, scratch: Path) -> None:
    home, workdir = scratch / "home", scratch / "work"
    own = settled(name, home, workdir, "http://127.0.0.1:1")
    agent = RealAgent(name, Path("/x"), (), home, workdir, own)

    variables = build_environment(agent.launch(variables={"MORE": "1"}), ()).variables
    assert own.items() <= variables.items()
    assert (str(home), "1") == (variables["HOME"], variables["MORE"])
    files = [file.read_text() for file in home.rglob("*") if file.is_file()]
    assert "http://127.0.0.1:1" in json.dumps([own, files])


def test_a_process_of_the_agents_home_that_outlives_the_test_fails_it_and_is_killed(tmp_path: Path) -> None:
    nothing_is_left(tmp_path)
    left = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})

    with pytest.raises(pytest.fail.Exception, match=f"{left.pid} sleep"):
        nothing_is_left(tmp_path, limit_s=0)
    assert -9 == left.wait()
