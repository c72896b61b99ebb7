"""The default sandbox grants for each known agent: the hosts it may reach and the files it gets copies of.

The grants are minimal. A host is listed because the agent cannot work without it. A file is listed because it holds
the log-in, or settings without which the agent would ask again for earlier decisions. Telemetry, updates and whole
configuration folders are left out. `kasmon new` shows the grants, and the user approves them once.
"""

from typing import Final, NamedTuple

from kasmon.model.sandbox.policy import CopiedFile


class SandboxGrant(NamedTuple):
    what: str
    """A host, or a file below the home folder."""
    why: str
    renews: bool = False
    """The agent renews tokens in this file; they are copied back."""


HOSTS: Final[dict[str, tuple[SandboxGrant, ...]]] = {
    "claude": (
        SandboxGrant("api.anthropic.com:443", "the model"),
        SandboxGrant("platform.claude.com:443", "renews a log-in"),
    ),
    "codex": (
        SandboxGrant("api.openai.com:443", "the model, with an API key"),
        SandboxGrant("chatgpt.com:443", "the model, with an account"),
        SandboxGrant("auth.openai.com:443", "renews a log-in"),
    ),
    "opencode": (
        SandboxGrant("opencode.ai:443", "its own models"),
        SandboxGrant("models.dev:443", "which models there are"),
        SandboxGrant("api.anthropic.com:443", "models of this provider"),
        SandboxGrant("api.openai.com:443", "models of this provider"),
    ),
    "gemini": (
        SandboxGrant("generativelanguage.googleapis.com:443", "the model, with an API key"),
        SandboxGrant("cloudcode-pa.googleapis.com:443", "the model, with an account"),
        SandboxGrant("oauth2.googleapis.com:443", "renews a log-in"),
    ),
}
REFUSED: Final[dict[str, tuple[SandboxGrant, ...]]] = {
    "claude": (
        SandboxGrant("http-intake.logs.us5.datadoghq.com:443", "telemetry"),
        SandboxGrant("downloads.claude.ai:443", "updates, and plugins"),
        SandboxGrant("storage.googleapis.com:443", "updates"),
        SandboxGrant("registry.npmjs.org:443", "updates"),
        SandboxGrant("raw.githubusercontent.com:443", "what is new in it"),
    ),
    "codex": (
        SandboxGrant("github.com:443", "plugins"),
        SandboxGrant("api.github.com:443", "updates"),
        SandboxGrant("chatgpt.com:443", "plugins, and telemetry"),
        SandboxGrant("ab.chatgpt.com:443", "telemetry"),
    ),
    "opencode": (
        SandboxGrant("registry.npmjs.org:443", "plugins, and updates"),
        SandboxGrant("github.com:443", "tools that it downloads"),
        SandboxGrant("api.github.com:443", "updates"),
        SandboxGrant("models.dev:443", "which models there are"),
        SandboxGrant("opencode.ai:443", "a schema, and which models there are"),
    ),
    "gemini": (
        SandboxGrant("play.googleapis.com:443", "telemetry"),
        SandboxGrant("registry.npmjs.org:443", "updates"),
        SandboxGrant("api.github.com:443", "updates of extensions"),
    ),
}
"""Hosts that each agent contacts by itself, at its start or in the background, but does not need. They are refused
without a permission request, except hosts of a preset while a turn runs. A host that is also allowed is reached."""
FILES: Final[dict[str, tuple[SandboxGrant, ...]]] = {
    "claude": (
        SandboxGrant(".claude/.credentials.json", "the log-in", renews=True),
        SandboxGrant(".claude.json", "the account, and that its first questions are answered"),
    ),
    "codex": (
        SandboxGrant(".codex/auth.json", "the log-in", renews=True),
        SandboxGrant(".codex/config.toml", "its model and provider, and which folders it trusts"),
    ),
    "opencode": (
        SandboxGrant(".local/share/opencode/auth.json", "the log-in", renews=True),
        SandboxGrant(".config/opencode/opencode.json", "its model and providers"),
    ),
    "gemini": (
        SandboxGrant(".gemini/oauth_creds.json", "the log-in", renews=True),
        SandboxGrant(".gemini/google_accounts.json", "the account"),
        SandboxGrant(".gemini/settings.json", "how it logs in, and its model"),
    ),
}


def hosts(agent: str) -> tuple[str, ...]:
    """Return the hosts that the sandbox of *agent* may reach."""
    return tuple(grant.what for grant in HOSTS[agent])


def refused_hosts(agent: str) -> tuple[str, ...]:
    """Return the hosts that the sandbox of *agent* is refused without a permission request."""
    return tuple(grant.what for grant in REFUSED[agent])


def files(agent: str) -> tuple[CopiedFile, ...]:
    """Return the files that are copied into the sandbox home of *agent*."""
    return tuple(CopiedFile(source=f"~/{grant.what}", target=grant.what, renews=grant.renews) for grant in FILES[agent])
