"""The config: its schema and defaults, its file, and what a profile in it means for a session."""

from kasmon.config.file import in_force, load, parse
from kasmon.config.profile import Offer, Resolved, offers, resolve
from kasmon.config.schema import (
    Config,
    Lifetime,
    Limits,
    Notify,
    Plans,
    Profile,
    Remote,
    Sandboxing,
    Searching,
    Tmux,
    Ui,
)

__all__ = [
    "Config",
    "Lifetime",
    "Limits",
    "Notify",
    "Offer",
    "Plans",
    "Profile",
    "Remote",
    "Resolved",
    "Sandboxing",
    "Searching",
    "Tmux",
    "Ui",
    "in_force",
    "load",
    "offers",
    "parse",
    "resolve",
]
