"""The config: its schema and defaults, its file, and how its profiles resolve for a session.

Start at `schema.Config`; `parser.load` reads the file, `profile.resolve` finds what an agent's session starts with.
"""

from kasmon.config.parser import load, load_or_default, parse
from kasmon.config.profile import ProfileOffer, ResolvedProfile, offers, resolve
from kasmon.config.schema import (
    Config,
    Lifetime,
    Limits,
    Notify,
    NotifyTarget,
    Plans,
    Profile,
    Remote,
    SandboxConfig,
    SearchConfig,
    Tmux,
    Ui,
)

__all__ = [
    "Config",
    "Lifetime",
    "Limits",
    "Notify",
    "NotifyTarget",
    "Plans",
    "Profile",
    "ProfileOffer",
    "Remote",
    "ResolvedProfile",
    "SandboxConfig",
    "SearchConfig",
    "Tmux",
    "Ui",
    "load",
    "load_or_default",
    "offers",
    "parse",
    "resolve",
]
