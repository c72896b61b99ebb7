"""The config in force in a folder: the person's own, with what the folder brings along where a person trusts just that.

The folder's file is read once: what is compared is what counts. A session that such a profile began is started again
only while that profile counts.
"""

import hashlib
from pathlib import Path

import msgspec

from kasmon.config import in_force
from kasmon.config.agent_address import split
from kasmon.config.folder_config import FolderConfig, look, overlaid
from kasmon.config.folder_config_text import defines
from kasmon.config.schema import Config, Profile
from kasmon.errors import ConfigError, RefusedError
from kasmon.model.commands import Launch
from kasmon.paths import Paths, expanded
from kasmon.store.trusted_folders import TrustedFolders


class FolderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts in one folder."""

    config: Config
    local: FolderConfig | None = None
    """What the folder brings along, whether it counts or not."""
    counts: bool = False
    notice: str = ""
    """One line: why what it brings along does not count, and what a person would do; empty where there is no need."""


def in_folder(places: Paths, config: Config, folder: str | Path) -> FolderSettings:
    """*config* as it is in force in *folder*, a path as a person writes it; empty is the caller's own. Blocks."""
    local = look(expanded(str(folder) or ".").absolute())
    if local is None:
        return FolderSettings(config=config)
    if TrustedFolders(places).counts(local):
        try:
            return FolderSettings(config=overlaid(config, local), local=local, counts=True)
        except ConfigError as error:
            return FolderSettings(
                config=config, local=local, notice=f"It is ignored: {error.message} {error.hint}".strip()
            )
    return FolderSettings(config=config, local=local, notice=_notice(places, local))


def for_session(places: Paths, config: Config, folder: str, agent: str) -> FolderSettings:
    """*config* as it is in force for a new session of *agent* in *folder*; on another machine nothing is added to it.

    Raises:
        UsageError: if *agent* names no machine that can be one.
        RefusedError: if only what the folder brings along knows *agent*, and nobody has trusted that.
    """
    name, machine = split(agent)
    if machine:
        return FolderSettings(config=config)
    here = in_folder(places, config, folder)
    if here.local is not None and not here.counts and name and name not in config.agents and defines(here.local, name):
        raise RefusedError(f"the agent {name!r} is defined only in a config that is ignored.", hint=here.notice)
    return here


def brought(places: Paths, config: Config, folder: str, agent: str) -> str:
    """By what the profile of *agent* in *config* is known, where a trusted config of *folder* has a part in it; else
    empty. Blocks."""
    local = look(expanded(folder or ".").absolute())
    if (
        local is None
        or agent not in config.agents
        or not defines(local, agent)
        or not TrustedFolders(places).counts(local)
    ):
        return ""
    return _known_by(config.agents[agent])


def check_brought(places: Paths, launch: Launch) -> None:
    """Refuse to start again what only a folder's own config made of an agent, and what counts no more. Blocks.

    Raises:
        RefusedError: if a person has withdrawn that trust, or what was trusted has changed.
    """
    if not launch.brought:
        return
    own = in_force(places)
    here = in_folder(places, own, launch.workdir)
    profiles = (config.agents.get(launch.agent) for config in (own, here.config))
    if not any(profile is not None and _known_by(profile) == launch.brought for profile in profiles):
        raise RefusedError(
            f"cannot restart session {launch.name!r}: the config of its folder, which defined the agent "
            f"{launch.agent!r}, is now ignored.",
            hint=here.notice or "`kasmon new` starts a session with the current config.",
        )


def _known_by(profile: Profile) -> str:
    """SHA-256 of what *profile* says; a field that a later version adds changes nothing."""
    plain, unsaid = msgspec.to_builtins(profile), msgspec.to_builtins(Profile())
    said = {field: value for field, value in plain.items() if value != unsaid[field]}
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _notice(places: Paths, local: FolderConfig) -> str:
    """Why *local* does not count, and what a person would do."""
    if local.fault:
        return f"{local.file!r} is ignored: {local.fault}."
    if local.is_linked:
        return (
            f"{local.file!r} is ignored: its folder was reached through a symbolic link. Its real path is "
            f"{local.root!r}."
        )
    was = any(known.root == local.root for known in TrustedFolders(places).read())
    why = "it, or its folder, is not the one that you trusted" if was else "you have not trusted it"
    return f"{local.file!r} is ignored: {why}. Review it with `kasmon trust {local.root}`."
