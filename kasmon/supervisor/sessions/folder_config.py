"""The config that applies in a folder: the user's own, with that of the folder if the user trusts its content.

The folder's file is read once: the content compared is the content used. A session whose profile came from it can be
restarted only while that profile applies.
"""

from pathlib import Path

import msgspec

from kasmon.config import load_or_default
from kasmon.config.agent_address import split
from kasmon.config.folder_config import FolderConfig, overlay, read_folder_config
from kasmon.config.folder_config_text import defines
from kasmon.config.schema import Config, Profile
from kasmon.errors import ConfigError, RefusedError
from kasmon.model.commands import Launch
from kasmon.paths import Paths, expanded
from kasmon.store.trusted_folders import TrustedFolders


class FolderSettings(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    local: FolderConfig | None = None
    """The folder's own config, whether it applies or not."""
    counts: bool = False
    notice: str = ""
    """One line: why the folder's own config does not apply, and what the user can do; empty if there is no need."""


def in_folder(paths: Paths, config: Config, folder: str | Path) -> FolderSettings:
    """Return *config* as it applies in *folder*, a path as a user writes it; empty is the caller's own. Blocks."""
    local = read_folder_config(expanded(str(folder) or ".").absolute())
    if local is None:
        return FolderSettings(config=config)
    if TrustedFolders(paths).counts(local):
        try:
            return FolderSettings(config=overlay(config, local), local=local, counts=True)
        except ConfigError as error:
            return FolderSettings(config=config, local=local, notice=f"It is ignored: {error}")
    return FolderSettings(config=config, local=local, notice=_notice(paths, local))


def for_session(paths: Paths, config: Config, folder: str, agent: str) -> FolderSettings:
    """Return *config* as it applies to a new session of *agent* in *folder*; on another machine, *config* itself.

    Raises `UsageError` if *agent* names an invalid machine; `RefusedError` if only the folder's own config defines
    *agent*, and the user has not trusted it.
    """
    name, machine = split(agent)
    if machine:
        return FolderSettings(config=config)
    settings = in_folder(paths, config, folder)
    if (
        settings.local is not None
        and not settings.counts
        and name
        and name not in config.agents
        and defines(settings.local, name)
    ):
        raise RefusedError(f"the agent {name!r} is defined only in a config that is ignored.", hint=settings.notice)
    return settings


def profile_hash(paths: Paths, config: Config, folder: str, agent: str) -> str:
    """Return the hash of the profile of *agent* in *config*, if a trusted config of *folder* contributes to it; else
    empty. Blocks."""
    local = read_folder_config(expanded(folder or ".").absolute())
    if (
        local is None
        or agent not in config.agents
        or not defines(local, agent)
        or not TrustedFolders(paths).counts(local)
    ):
        return ""
    return _profile_digest(config.agents[agent])


def check_brought(paths: Paths, launch: Launch) -> None:
    """Raise `RefusedError` if the profile of an agent came from a folder's own config that no longer applies. Blocks.

    The user has revoked the trust, or the trusted content has changed.
    """
    if not launch.brought:
        return
    own = load_or_default(paths)
    settings = in_folder(paths, own, launch.worktree.source if launch.worktree else launch.workdir)
    profiles = (config.agents.get(launch.agent) for config in (own, settings.config))
    if not any(profile is not None and _profile_digest(profile) == launch.brought for profile in profiles):
        raise RefusedError(
            f"cannot restart session {launch.name!r}: the config of its folder, which defined the agent "
            f"{launch.agent!r}, is now ignored.",
            hint=settings.notice or "`kasmon new` starts a session with the current config.",
        )


def _profile_digest(profile: Profile) -> str:
    """Return the SHA-256 of the settings of *profile*; fields added by later versions do not change it."""
    import hashlib  # only here: few folders have a config, and the library takes 4 ms to load

    plain, unsaid = msgspec.to_builtins(profile), msgspec.to_builtins(Profile())
    settings = {field: value for field, value in plain.items() if value != unsaid[field]}
    return hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()


def _notice(paths: Paths, local: FolderConfig) -> str:
    """Return why *local* does not apply, and what the user can do."""
    if local.fault:
        return f"{local.file!r} is ignored: {local.fault}."
    if local.is_linked:
        return (
            f"{local.file!r} is ignored: its folder was reached through a symbolic link. Its real path is "
            f"{local.root!r}."
        )
    was_trusted = any(known.root == local.root for known in TrustedFolders(paths).read())
    why = "it, or its folder, is not the one that you trusted" if was_trusted else "you have not trusted it"
    return f"{local.file!r} is ignored: {why}. Review it with `kasmon trust {local.root}`."
