"""The config: its schema and defaults, its file, and what a profile in it means for a session."""

from kasmon.config.file import in_force, load, parse
from kasmon.config.profile import Offer, Resolved, offers, resolve
from kasmon.config.schema import Config, Limits, Notify, Plans, Profile, Remote, Tmux, Ui

__all__ = [
    "Config",
    "Limits",
    "Notify",
    "Offer",
    "Plans",
    "Profile",
    "Remote",
    "Resolved",
    "Tmux",
    "Ui",
    "in_force",
    "load",
    "offers",
    "parse",
    "resolve",
]
