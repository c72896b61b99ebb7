"""The installed real agents, each with a home directory of the bench and without network access.

No account is needed or used: the provider's address and the proxy are a closed port of this machine. So everything
before an agent's first prompt happens without its provider.
"""

import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import kasmon
from kasmon.errors import AgentNotFoundError
from kasmon.paths import write_private

CHECKOUT: Final = Path(kasmon.__file__).parents[1] / ".cache" / "agents" / "node_modules" / ".bin"
"""Where `make agents` installs them, in a clone of kasmon."""
BIN_DIR: Final = "KASMON_AGENT_BIN_DIR"
"""The variable that names another folder, which takes precedence."""
KEY: Final = "sk-ant-of-a-bench-0123456789"
"""A key of no account."""


def program(agent: str, variables: Mapping[str, str] = os.environ) -> Path:
    """Return the program of *agent*: from the folder in `KASMON_AGENT_BIN_DIR`, the checkout's, or PATH.

    Raises:
        AgentNotFoundError: if it is in none of them.
    """
    for folder in (variables.get(BIN_DIR), str(CHECKOUT), variables.get("PATH", os.defpath)):
        if folder and (found := shutil.which(agent, path=folder)):
            return Path(found).absolute()
    raise AgentNotFoundError(agent, agent)


def create_home(agent: str, root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Create a home for *agent* in the folder *root*; return the variables for its launcher, and those of its own.

    codex refuses a home inside its TMPDIR, so the two are sibling folders.
    """
    home, work, dead = root / "home", root / "work", f"http://127.0.0.1:{_closed_port()}"
    folders = {"HOME": home, "TMPDIR": root / "tmp", "XDG_DATA_HOME": home / "data", "XDG_CACHE_HOME": home / "cache"}
    for folder in (*folders.values(), work):
        folder.mkdir(mode=0o700)
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), dead)
    launcher_variables = {name: str(folder) for name, folder in folders.items()} | proxies
    launcher_variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")  # opencode connects to itself
    own = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}.get(agent)
    return launcher_variables, own(home, work, dead) if own else {}


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _claude(_home: Path, _work: Path, dead: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": dead,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(home: Path, work: Path, dead: str) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir(mode=0o700)
    write_private(
        folder / "config.toml",
        f"""\
model = "gpt-5.5"
model_provider = "nobody"
check_for_update_on_startup = false

[model_providers.nobody]
name = "nobody"
base_url = "{dead}/v1"
wire_api = "responses"
env_key = "NOBODY_KEY"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[projects."{work}"]
trust_level = "trusted"
""".encode(),
    )
    return {"CODEX_HOME": str(folder), "NOBODY_KEY": KEY}


def _gemini(home: Path, work: Path, dead: str) -> dict[str, str]:
    folder = home / ".gemini"
    folder.mkdir(mode=0o700)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    write_private(folder / "settings.json", json.dumps(settings).encode())
    write_private(folder / "trustedFolders.json", json.dumps({str(work): "TRUST_FOLDER"}).encode())
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": dead}


def _opencode(_home: Path, _work: Path, dead: str) -> dict[str, str]:
    model = {"name": "Nobody", "tool_call": True, "limit": {"context": 100_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{dead}/v1", "apiKey": KEY}}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "nobody/nobody",
        "small_model": "nobody/nobody",
        "provider": {"nobody": {**provider, "models": {"nobody": model}}},
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }
