"""A real agent on this machine: where its program is, and what makes it work offline against the model stub."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from kasmon.backends.common.environment import encoded
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths, write_private
from tests.support.agents import more_agents
from tests.support.wait import until

ROOT: Final = Path(__file__).parents[3]
INSTALLED: Final = ROOT / ".cache" / "agents" / "node_modules" / ".bin"
"""Where `make agents` puts them."""
MORE_INSTALLED: Final = ROOT / ".cache" / "more-agents" / "bin"
"""Where `make more-agents` puts the others, with the node that they need."""
MORE_PINS: Final = ROOT / "tests" / "agents" / "more" / "package.json"
PINS: Final = ROOT / "tests" / "agents" / "package.json"
PACKAGES: Final = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
}
BACKENDS: Final = {"claude": "claude", "codex": "codex", "gemini": "acp", "opencode": "acp"}
FLAGS: Final[dict[str, tuple[str, ...]]] = {"gemini": ("--acp", "--skip-trust"), "opencode": ("acp",)}
MODEL: Final = "gpt-5.5"
"""For codex, which has tools that depend on its model; the stub answers to every name."""
OWN_PREFIXES: Final = (
    *("ANTHROPIC_", "CLAUDE", "CODEX_", "GEMINI_", "GOOGLE_", "OPENAI_", "OPENCODE"),
    *more_agents.OWN_PREFIXES,
)
"""How variables of agents begin; a developer's own must not reach the agents of a test."""
KEY: Final = "sk-ant-of-a-test-0123456789"
"""Of no account."""


@dataclass(frozen=True)
class RealAgent:
    """One real agent with a home, a folder to work in, and the model stub in place of its provider."""

    name: str
    program: Path
    flags: tuple[str, ...]
    """What makes it speak its protocol where it is no native one of kasmon's: ACP."""
    home: Path
    workdir: Path
    """Empty; the agent trusts it already."""
    own: Mapping[str, str] = field(repr=False)
    """The variables that it has beside those that every agent gets."""

    def launch(self, *, variables: Mapping[str, str] | None = None, session: str = "contract", **more: Any) -> Launch:
        """How kasmon starts it; its own variables and *variables* stand in the session's file, where it reads them."""
        own = {**self.own, **(variables or {})}
        folder = user_paths().folder(session)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(user_paths().environment(session), encoded(own))
        fields: dict[str, Any] = {
            "name": self.name,
            "agent": self.name,
            "mode": Mode.SDK,
            "backend": BACKENDS.get(self.name, "acp"),
            "argv": (str(self.program), *self.flags),
            "workdir": str(self.workdir),
        }
        return Launch(session=SessionId(session), **(fields | more))

    @property
    def environment(self) -> dict[str, str]:
        """Its whole environment, for a test that starts the program itself."""
        return {**os.environ, "PWD": str(self.workdir), **self.own}


def agent_binary(name: str) -> Path:
    """The program of the agent *name*: in KASMON_AGENT_BIN_DIR, in .cache/agents, else on PATH.

    Of codex it is the native program and not the node script that starts it. Where there is none the test is skipped;
    it fails where KASMON_REQUIRE_AGENTS (a list with commas, or `all`) names the agent.
    """
    if program := find(name):
        return program
    target = "more-agents" if name in more_agents.AGENTS else "agents"
    why = f"{name!r} is not installed: run `make {target}`, or name its folder in KASMON_AGENT_BIN_DIR"
    required = {word.strip() for word in os.environ.get("KASMON_REQUIRE_AGENTS", "").split(",")}
    if required & {name, "all"}:
        pytest.fail(f"{why} (KASMON_REQUIRE_AGENTS asks for it)", pytrace=False)
    pytest.skip(why)


def find(name: str) -> Path | None:
    """The program of the agent *name*, if there is one."""
    folders = (os.environ.get("KASMON_AGENT_BIN_DIR"), str(INSTALLED), str(MORE_INSTALLED), None)
    found = next((there for folder in folders if (there := shutil.which(name, path=folder))), None)
    if found is None:
        return None
    program = Path(found)
    return native_codex(program) or program if name == "codex" else program


def native_codex(program: Path) -> Path | None:
    """The native program behind codex's node script, wherever npm has put it."""
    package = program.resolve().parent.parent
    for folder in (package.parent, package / "node_modules" / "@openai"):
        for native in sorted(folder.glob("codex-*/vendor/*/bin/codex")):
            return native
    return None


def pinned_version(name: str) -> str:
    if (known := more_agents.AGENTS.get(name)) is None:
        return str(json.loads(PINS.read_text())["dependencies"][PACKAGES[name]])
    lines = (MORE_PINS.parent / "requirements.txt").read_text().split()
    versions = json.loads(MORE_PINS.read_text())["dependencies"] | dict(line.split("==") for line in lines)
    return str(versions[known.package])


def settled(name: str, home: Path, workdir: Path, url: str) -> dict[str, str]:
    """Write the settings of *name* into *home*, so that it trusts *workdir* and calls *url*; the variables it needs."""
    own = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}
    return (own | more_agents.SETTLED)[name](home, workdir, url)


def _claude(home: Path, workdir: Path, url: str) -> dict[str, str]:
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]]},
        "projects": {str(workdir): {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(settings))
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",
        "ENABLE_TOOL_SEARCH": "false",  # else it holds tools back until the model searches for them
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(home: Path, workdir: Path, url: str) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""\
model = "{MODEL}"
model_provider = "stub"
check_for_update_on_startup = false

[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[notice.model_migrations]
"{MODEL}" = "gpt-6-sol"

[sandbox_workspace_write]
exclude_slash_tmp = true

[projects."{workdir}"]
trust_level = "trusted"
"""
    )
    return {"CODEX_HOME": str(folder), "STUB_KEY": KEY}


def _gemini(home: Path, workdir: Path, url: str) -> dict[str, str]:
    folder = home / ".gemini"
    folder.mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "trustedFolders.json").write_text(json.dumps({str(workdir): "TRUST_FOLDER"}))
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}


def _opencode(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    catalogue = home / "models.json"
    catalogue.write_text("{}")  # reading its own one, of all providers, is a third of what a start and a turn cost
    model = {"name": "Stub", "tool_call": True, "limit": {"context": 100_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1", "apiKey": KEY}}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "stub/stub-model",
        "small_model": "stub/stub-model",
        "permission": {"bash": "ask", "edit": "ask"},
        "provider": {"stub": {**provider, "models": {"stub-model": model, "other-model": model}}},
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_MODELS_PATH": str(catalogue),
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def nothing_is_left(home: Path, limit_s: float = 5.0) -> None:
    """Fail the test, and kill them, if processes of *home* are still there after *limit_s*."""
    try:
        until(lambda: not family(home), limit_s)
    except TimeoutError:
        left = family(home)
        names = [f"{process.pid} {process.name()}" for process in left]
        for process in left:
            process.kill()
        pytest.fail(f"still running after the test: {', '.join(names)}", pytrace=False)


def family(home: Path) -> Sequence[psutil.Process]:
    """The processes that live with *home* as their HOME: an agent and all that it started."""
    return [process for process in psutil.process_iter() if _home_of(process) == str(home)]


def _home_of(process: psutil.Process) -> str | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.environ().get("HOME")
    except (psutil.Error, OSError):
        return None
