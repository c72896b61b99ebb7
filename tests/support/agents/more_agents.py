"""More agents, which `make more-agents` installs: what makes each work offline against the model stub.

All of them talk to a server that is compatible with OpenAI's Chat Completions. Auggie and Amp talk to servers of their
own only; of these, tests see the request to log in.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

KEY: Final = "sk-of-a-test-0123456789"
"""Of no account."""
MODEL: Final = "stub-model"


class MoreAgent(NamedTuple):
    package: str
    """Its npm package, which tests/agents/more/package.json pins; of aider its Python package, in requirements.txt."""
    acp: tuple[str, ...] = ()
    """What starts it with the Agent Client Protocol; empty: it does not have it."""


AGENTS: Final = {
    "aider": MoreAgent("aider-chat"),
    "amp": MoreAgent("@sourcegraph/amp"),
    "auggie": MoreAgent("@augmentcode/auggie", ("--acp",)),
    "cline": MoreAgent("cline", ("--acp",)),
    "copilot": MoreAgent("@github/copilot", ("--acp",)),
    "droid": MoreAgent("droid", ("exec", "--output-format", "acp")),
    "goose": MoreAgent("@aaif/goose-binary-linux-x64", ("acp",)),
    "grok": MoreAgent("@xai-official/grok", ("agent", "stdio")),
    "kimi": MoreAgent("@moonshot-ai/kimi-code", ("acp",)),
    "pi": MoreAgent("@earendil-works/pi-coding-agent"),
    "pi-acp": MoreAgent("pi-acp"),
    "qwen": MoreAgent("@qwen-code/qwen-code", ("--acp",)),
}
OWN_PREFIXES: Final = (
    *("AIDER_", "AMP_", "AUGMENT_", "CLINE_", "COPILOT_", "FACTORY_", "GH_", "GITHUB_", "GOOSE_", "GROK_", "KIMI_"),
    *("PI_", "QWEN_", "STUB_", "XAI_"),
)
"""How their variables begin, beside those of the other agents."""


def _aider(_home: Path, _workdir: Path, url: str) -> dict[str, str]:
    no = ("CHECK_UPDATE", "SHOW_MODEL_WARNINGS", "SHOW_RELEASE_NOTES", "GITIGNORE", "AUTO_COMMITS", "GIT")
    own = {"AIDER_MODEL": f"openai/{MODEL}", "AIDER_EDIT_FORMAT": "diff", "AIDER_ANALYTICS_DISABLE": "true"}
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": KEY} | own | {f"AIDER_{name}": "false" for name in no}


def _amp(_home: Path, _workdir: Path, url: str) -> dict[str, str]:
    return {"AMP_URL": url}


def _auggie(_home: Path, _workdir: Path, url: str) -> dict[str, str]:
    return {"AUGMENT_API_URL": url}


def _cline(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    provider = "openai-compatible"
    settings = {"provider": provider, "apiKey": KEY, "model": MODEL, "baseUrl": f"{url}/v1"}
    known = {"settings": settings, "updatedAt": "2026-11-30T00:00:00.000Z", "tokenSource": "manual"}
    value = {"version": 1, "lastUsedProvider": provider, "modes": {}, "providers": {provider: known}}
    _write(home / ".cline" / "data" / "settings" / "providers.json", value)
    no = {"CLINE_DISABLE_CLINE_PASS_NOTICE": "1", "CLINE_TELEMETRY_DISABLED": "1"}
    return {"CLINE_API_KEY": KEY, "CLINE_PROVIDER": provider, "CLINE_MODEL": MODEL, **no}


def _copilot(home: Path, workdir: Path, url: str) -> dict[str, str]:
    _write(home / ".copilot" / "config.json", {"trusted_folders": [str(workdir)], "banner": "never"})
    limits = {"COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "100000", "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8000"}
    provider = {"BASE_URL": f"{url}/v1", "TYPE": "openai", "API_KEY": KEY}
    own = {f"COPILOT_PROVIDER_{name}": value for name, value in provider.items()}
    return {**own, **limits, "COPILOT_MODEL": MODEL, "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}


def _droid(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    model = {"model": MODEL, "displayName": "Stub", "baseUrl": f"{url}/v1", "apiKey": KEY, "maxOutputTokens": 8000}
    settings = {
        "customModels": [{**model, "provider": "generic-chat-completion-api"}],
        "sessionDefaultSettings": {"model": "custom:Stub-0"},
        "cloudSessionSync": False,
    }
    _write(home / ".factory" / "settings.json", settings)
    return {"FACTORY_API_KEY": f"fk-{KEY}", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"}


def _goose(_home: Path, _workdir: Path, url: str) -> dict[str, str]:
    own = {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": MODEL, "GOOSE_MODE": "approve", "GOOSE_DISABLE_KEYRING": "1"}
    return {"OPENAI_HOST": url, "OPENAI_API_KEY": KEY, "GOOSE_TELEMETRY_ENABLED": "false", **own}


def _grok(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    file = home / ".grok" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        f"""\
[models]
default = "stub"

[model.stub]
name = "Stub"
model = "{MODEL}"
base_url = "{url}/v1"
env_key = "STUB_KEY"
context_window = 100000
"""
    )
    return {"STUB_KEY": KEY, "GROK_DISABLE_AUTOUPDATER": "1", "GROK_PROMPT_SUGGESTIONS": "0"}


def _kimi(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    file = home / ".kimi-code" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        f"""\
default_model = "stub/{MODEL}"
default_permission_mode = "manual"
telemetry = false

[providers.stub]
type = "openai"
base_url = "{url}/v1"
api_key = "{KEY}"

[models."stub/{MODEL}"]
provider = "stub"
model = "{MODEL}"
max_context_size = 100000
capabilities = ["tool_use"]

[loop_control]
max_attempts_per_step = 1
"""
    )
    return {"KIMI_CODE_NO_AUTO_UPDATE": "1"}


def _pi(home: Path, _workdir: Path, url: str) -> dict[str, str]:
    model = {"id": MODEL, "name": "Stub", "contextWindow": 100_000, "maxTokens": 8_000}
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    _write(home / ".pi" / "agent" / "models.json", {"providers": {"stub": provider}})
    _write(home / ".pi" / "agent" / "settings.json", {"defaultProvider": "stub", "defaultModel": MODEL})
    return {"PI_OFFLINE": "1"}


def _qwen(home: Path, workdir: Path, url: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "tools": {"approvalMode": "default"},
        "ui": {"enableFollowupSuggestions": False, "hideTips": True},
        "memory": {"enableManagedAutoMemory": False},
        "model": {"name": MODEL},
    }
    _write(home / ".qwen" / "settings.json", settings)
    _write(home / ".qwen" / "trustedFolders.json", {str(workdir): "TRUST_FOLDER"})
    return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}


def _write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


SETTLED: Final[dict[str, Callable[[Path, Path, str], dict[str, str]]]] = {
    "aider": _aider,
    "amp": _amp,
    "auggie": _auggie,
    "cline": _cline,
    "copilot": _copilot,
    "droid": _droid,
    "goose": _goose,
    "grok": _grok,
    "kimi": _kimi,
    "pi": _pi,
    "pi-acp": _pi,
    "qwen": _qwen,
}
"""Each writes its agent's settings into a home, so that it trusts a folder and calls a URL; the variables it needs."""
