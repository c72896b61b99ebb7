"""What the jail of each known agent gets unless its profile says otherwise: whom it must reach, which files it needs.

It is the least with which the agent does its work: a host is here because the agent does nothing without it, a file
because it holds the log-in, or settings without which the agent asks for what was settled long ago. Telemetry, updates
and whole configuration folders are left out. `kasmon new` shows it, and a person agrees to it once.
"""

from typing import Final, NamedTuple

from kasmon.model.sandbox import Handed


class Given(NamedTuple):
    """One thing that is handed to a jail."""

    what: str
    """A host, or a file below the home folder."""
    why: str
    renews: bool = False
    """A file whose renewed tokens are brought back."""


HOSTS: Final[dict[str, tuple[Given, ...]]] = {
    "claude": (
        Given("api.anthropic.com:443", "the model"),
        Given("platform.claude.com:443", "renews a log-in"),
    ),
    "codex": (
        Given("api.openai.com:443", "the model, with an API key"),
        Given("chatgpt.com:443", "the model, with an account"),
        Given("auth.openai.com:443", "renews a log-in"),
    ),
    "opencode": (
        Given("opencode.ai:443", "its own models"),
        Given("models.dev:443", "which models there are"),
        Given("api.anthropic.com:443", "models of this provider"),
        Given("api.openai.com:443", "models of this provider"),
    ),
    "gemini": (
        Given("generativelanguage.googleapis.com:443", "the model, with an API key"),
        Given("cloudcode-pa.googleapis.com:443", "the model, with an account"),
        Given("oauth2.googleapis.com:443", "renews a log-in"),
    ),
}
FILES: Final[dict[str, tuple[Given, ...]]] = {
    "claude": (
        Given(".claude/.credentials.json", "the log-in", renews=True),
        Given(".claude.json", "the account, and that its first questions are answered"),
    ),
    "codex": (
        Given(".codex/auth.json", "the log-in", renews=True),
        Given(".codex/config.toml", "its model and provider, and which folders it trusts"),
    ),
    "opencode": (
        Given(".local/share/opencode/auth.json", "the log-in", renews=True),
        Given(".config/opencode/opencode.json", "its model and providers"),
    ),
    "gemini": (
        Given(".gemini/oauth_creds.json", "the log-in", renews=True),
        Given(".gemini/google_accounts.json", "the account"),
        Given(".gemini/settings.json", "how it logs in, and its model"),
    ),
}


def hosts(agent: str) -> tuple[str, ...]:
    """Whom the jail of *agent* may reach."""
    return tuple(given.what for given in HOSTS[agent])


def files(agent: str) -> tuple[Handed, ...]:
    """The files that the home of *agent* inside gets copies of."""
    return tuple(Handed(source=f"~/{given.what}", target=given.what, renews=given.renews) for given in FILES[agent])
