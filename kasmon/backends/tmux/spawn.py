"""Puts an agent into a pane: its launch file, its variables, and the pane, which may be the one it had before."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.surroundings import given, own_prefixes, taken
from kasmon.backends.tmux.completion import can_be_asked
from kasmon.backends.tmux.hooking import hooked
from kasmon.backends.tmux.hooks import FILE as HOOKS
from kasmon.backends.tmux.inside import Inside, wrapped
from kasmon.backends.tmux.program import program_of
from kasmon.clean import clean_line
from kasmon.errors import LaunchError, TmuxCommandError
from kasmon.model.command import Launch
from kasmon.model.task import environment
from kasmon.paths import Places
from kasmon.tmux.facts import Pane, PaneFacts
from kasmon.tmux.identity import Process, identify
from kasmon.tmux.remote import attach_argv
from kasmon.tmux.server import Server
from kasmon.tmux.spec import LaunchSpec, fresh_nonce, launch_argv, write_environment, write_spec
from kasmon.tmux.ssh import Machine

SPEC: Final = "pane.launch"
VARIABLES: Final = "pane.env"
"""Files in a session's folder, which are there while its agent starts."""


class Spawned(msgspec.Struct, frozen=True):
    """An agent that was put into a pane."""

    pane: Pane
    process: Process | None
    """None if it ended before anybody could look."""
    nonce: str
    """What the pane will announce."""
    inside: Inside | None = None
    """What is known of its sandbox; None where it has none."""


def spawn(
    server: Server,
    places: Places,
    launch: Launch,
    panes: Mapping[str, PaneFacts],
    around: Mapping[str, str] | None = None,
    ssh: Sequence[str] = ("ssh",),
) -> Spawned:
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
        raise LaunchError(f"session {launch.name!r} names no program to run.")
    nonce = fresh_nonce()
    argv, inside = _written(server, places, launch, nonce, around or os.environ, tuple(ssh))
    had, parent = panes.get(launch.session), panes.get(launch.parent or "")
    if had is not None:
        pane = server.respawn(had.pane_id, argv)
    else:
        pane = server.create(launch.session, argv, parent=parent.session_id if parent else None)
    with contextlib.suppress(TmuxCommandError):  # the agent runs; its window's name is for people
        server.rename(pane.window_id, clean_line(launch.window or launch.name) or launch.session)
    return Spawned(pane, identify(pane.pid), nonce, inside)


def swept(places: Places, launch: Launch) -> None:
    """Remove what only a starting agent needs: its variables stand in there."""
    for name in (SPEC, VARIABLES):
        (places.folder(launch.session) / name).unlink(missing_ok=True)


def _written(
    server: Server, places: Places, launch: Launch, nonce: str, around: Mapping[str, str], ssh: tuple[str, ...]
) -> tuple[list[str], Inside | None]:
    """What the pane has to run, its files in place; and what is known of its sandbox."""
    folder = places.folder(launch.session)
    if launch.machine:
        shown = attach_argv(Machine(launch.machine, ssh), launch.session, nonce)
        return _shown(folder, launch, LaunchSpec(argv=shown, workdir=Path("/"), base=around)), None
    if launch.sandbox is not None:
        own = taken(own_prefixes(launch.argv), around) | given(places, launch.session) | environment(launch)
        inside = wrapped(places, launch, nonce, around, own)
        spec = LaunchSpec(
            argv=inside.argv, workdir=Path("/"), base=around, nonce=nonce, program=server.program, socket=server.socket
        )
        return _shown(folder, launch, spec), inside
    program = program_of(launch.argv, launch.agent)
    given_hooks = hooked(program, launch.argv, folder, launch.generation, nonce)
    spec = LaunchSpec(
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
        if can_be_asked(launch.argv):
            own.setdefault("HISTCONTROL", "ignorespace")  # what kasmon asks a shell begins with a blank
        (folder / HOOKS).unlink(missing_ok=True)
        write_environment(folder / VARIABLES, own)
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be started: {error}.") from error
    return launch_argv(folder / SPEC), None


def _shown(folder: Path, launch: Launch, spec: LaunchSpec) -> list[str]:
    """What a pane has to run to show an agent elsewhere, or in a sandbox: what stands in front of it needs nothing."""
    try:
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be shown: {error}.") from error
    return launch_argv(folder / SPEC)
