"""Puts an agent into a pane: its launch file, its variables, and the pane, which may be the one it had before."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.common.environment import given, own_prefixes, search_path, taken
from kasmon.backends.tmux.agent_identity import program_of
from kasmon.backends.tmux.agent_sandbox import AgentSandbox, wrapped
from kasmon.backends.tmux.evidence.hook_setup import hooked
from kasmon.backends.tmux.evidence.hooks import FILE as HOOKS
from kasmon.backends.tmux.input.command_completion import can_be_asked
from kasmon.errors import LaunchError, TmuxCommandError
from kasmon.model.commands import Launch
from kasmon.model.task import environment
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.tmux.formats import CreatedPane, PaneFacts
from kasmon.tmux.launch_file import PaneLaunch, fresh_nonce, launch_argv, write_environment, write_spec
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.remote.agent import attach_argv
from kasmon.tmux.remote.ssh import RemoteMachine
from kasmon.tmux.server import TmuxServer

SPEC: Final = "pane.launch"
VARIABLES: Final = "pane.env"
"""Files in a session's folder, which are there while its agent starts."""


class SpawnedAgent(msgspec.Struct, frozen=True):
    """An agent that was put into a pane."""

    pane: CreatedPane
    process: ProcessIdentity | None
    """None if it ended before anybody could look."""
    nonce: str
    """What the pane will announce."""
    inside: AgentSandbox | None = None
    """What is known of its sandbox; None where it has none."""


def spawn(
    server: TmuxServer,
    places: Paths,
    launch: Launch,
    panes: Mapping[str, PaneFacts],
    around: Mapping[str, str] | None = None,
    ssh: Sequence[str] = ("ssh",),
) -> SpawnedAgent:
    """Start *launch* in the background: in the pane it had, beside its parent, or in a tmux session of its own.

    Args:
        panes: those that there are, by session id.
        around: the variables of whoever wants it; by default, and where there are none, those of this process.
        ssh: what shows one that runs on another machine.

    Raises:
        LaunchError: if it names no program, or its folder cannot take what it needs.
        TmuxServerGoneError, TmuxCommandError: if tmux does not do it.
    """
    if not launch.argv and not launch.machine:
        raise LaunchError(f"session {launch.name!r} has no program to run.")
    nonce = fresh_nonce()
    argv, inside = _written(server, places, launch, nonce, around or os.environ, tuple(ssh))
    had, parent = panes.get(launch.session), panes.get(launch.parent or "")
    if had is not None:
        pane = server.respawn(had.pane_id, argv)
    else:
        pane = server.create(launch.session, argv, parent=parent.session_id if parent else None)
    with contextlib.suppress(TmuxCommandError):  # the agent runs; its window's name is for people
        server.rename(pane.window_id, clean_line(launch.window or launch.name) or launch.session)
    return SpawnedAgent(pane, identify(pane.pid), nonce, inside)


def swept(places: Paths, launch: Launch) -> None:
    """Remove what only a starting agent needs: its variables stand in there."""
    for name in (SPEC, VARIABLES):
        (places.folder(launch.session) / name).unlink(missing_ok=True)


def _written(
    server: TmuxServer, places: Paths, launch: Launch, nonce: str, around: Mapping[str, str], ssh: tuple[str, ...]
) -> tuple[list[str], AgentSandbox | None]:
    """What the pane has to run, its files in place; and what is known of its sandbox."""
    folder = places.folder(launch.session)
    if launch.machine:
        shown = attach_argv(RemoteMachine(launch.machine, ssh), launch.session, nonce)
        return _shown(folder, launch, PaneLaunch(argv=shown, workdir=Path("/"), base=around)), None
    if launch.sandbox is not None:
        own = taken(own_prefixes(launch.argv), around) | given(places, launch.session) | environment(launch)
        inside = wrapped(places, launch, nonce, around, own)
        spec = PaneLaunch(
            argv=inside.argv, workdir=Path("/"), base=around, nonce=nonce, program=server.program, socket=server.socket
        )
        return _shown(folder, launch, spec), inside
    program = program_of(launch.argv, launch.agent)
    given_hooks = hooked(program, launch.argv, folder, launch.generation, nonce)
    spec = PaneLaunch(
        argv=given_hooks.argv,
        workdir=Path(launch.workdir),
        base=around,
        env_file=folder / VARIABLES,
        nonce=nonce,
        program=server.program,
        socket=server.socket,
    )
    try:
        own = taken(own_prefixes(launch.argv), around) | given(places, launch.session) | environment(launch)
        own |= given_hooks.variables
        own["PATH"] = search_path(places, {**around, **own})
        if can_be_asked(launch.argv):
            own.setdefault("HISTCONTROL", "ignorespace")  # what kasmon asks a shell begins with a blank
        (folder / HOOKS).unlink(missing_ok=True)
        write_environment(folder / VARIABLES, own)
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be started: {error}.") from error
    return launch_argv(folder / SPEC), None


def _shown(folder: Path, launch: Launch, spec: PaneLaunch) -> list[str]:
    """What a pane has to run to show an agent elsewhere, or in a sandbox: what stands in front of it needs nothing."""
    try:
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be shown: {error}.") from error
    return launch_argv(folder / SPEC)
