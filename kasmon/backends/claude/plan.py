"""What is settled before the process starts: command line, environment, and which conversation it is to have."""

import uuid
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.claude.command import (
    OWN_PREFIXES,
    chooses_conversation,
    command,
    config_folder,
    environment,
)
from kasmon.backends.claude.history import Memory, carried, memory
from kasmon.backends.surroundings import surroundings
from kasmon.backends.trust import check
from kasmon.errors import ExtraMissingError, LaunchError
from kasmon.model.command import Launch, Used
from kasmon.paths import places

SDK: Final = "claude-agent-sdk"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How one `claude` is going to be started."""

    argv: tuple[str, ...]
    variables: dict[str, str]
    """Its whole environment."""
    secrets: tuple[str, ...]
    conversation: str
    """The id that it is to have; empty where the user's flags choose it."""
    memory: Memory | None
    """What its transcript says of a conversation that goes on; None for a new one."""
    carried: Used = Used()
    """The figures that it goes on from."""

    @property
    def config(self) -> Path:
        """The folder in which claude keeps its settings and its conversations."""
        return Path(config_folder(self.variables))


def planned(launch: Launch) -> Plan:
    """The plan for *launch*; looks at files.

    A new conversation gets an id of ours, so that it is known before the first prompt. One in which nothing was said
    yet has no transcript, and begins again under its id.

    Raises:
        ExtraMissingError: if the SDK is not installed.
        LaunchError: if there is no program.
        UntrustedFolderError: if it would run what nobody has trusted.
    """
    if not launch.argv:
        raise LaunchError(f"cannot start {launch.agent!r}: its profile names no program.")
    try:
        sdk = version(SDK)
    except PackageNotFoundError as error:
        raise ExtraMissingError("claude", "claude") from error
    around = surroundings(launch, OWN_PREFIXES)
    variables = environment(launch, around.variables, sdk)
    check("claude", launch.argv, launch.workdir, variables)
    if launch.sandbox is not None:  # it remembers in its home there
        from kasmon.sandbox.inmate import home_of

        variables["HOME"] = str(home_of(places(), launch.session))
        variables.pop("CLAUDE_CONFIG_DIR", None)
    chosen = chooses_conversation(launch.argv[1:])
    known, begin, resume = None, "", launch.resume or ""
    if resume:
        known = memory(Path(config_folder(variables)), resume, launch.remembers)
        if known is Memory.NO_TRANSCRIPT and not launch.remembers and not chosen:
            known, begin, resume = None, resume, ""
    elif not chosen:
        begin = str(uuid.uuid4())
    return Plan(
        argv=tuple(command(launch, begin=begin, resume=resume)),
        variables=variables,
        secrets=around.secrets,
        conversation=begin or resume,
        memory=known,
        carried=carried(Path(config_folder(variables)), resume) if resume else Used(),
    )
