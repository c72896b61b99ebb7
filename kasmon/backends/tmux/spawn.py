"""Starts an agent in a pane: its launch file, its variables, and a new pane or the one it had before."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.common.environment import load_variables, own_prefixes, program_of, search_path, select_own
from kasmon.backends.tmux.agent_sandbox import AgentSandbox, prepare_sandbox
from kasmon.backends.tmux.evidence.hook_setup import hooked
from kasmon.backends.tmux.evidence.hooks import FILE as HOOKS
from kasmon.backends.tmux.input.command_completion import supports_query
from kasmon.errors import LaunchError
from kasmon.model.commands import Launch
from kasmon.model.task import environment
from kasmon.paths import Paths
from kasmon.tmux.formats import CreatedPane, PaneFacts
from kasmon.tmux.launch_file import PaneLaunch, fresh_nonce, launch_argv, write_environment, write_spec
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.remote.agent import attach_argv
from kasmon.tmux.remote.ssh import RemoteMachine
from kasmon.tmux.server import TmuxServer

SPEC: Final = "pane.launch"
VARIABLES: Final = "pane.env"
"""Files in a session's folder that exist while its agent starts."""


class SpawnedAgent(msgspec.Struct, frozen=True):
    pane: CreatedPane
    process: ProcessIdentity | None
    """None if it ended before it was identified."""
    nonce: str
    """The nonce that the pane will announce."""
    sandbox: AgentSandbox | None = None


def spawn(
    server: TmuxServer,
    paths: Paths,
    launch: Launch,
    panes: Mapping[str, PaneFacts],
    base: Mapping[str, str] | None = None,
    ssh: Sequence[str] = ("ssh",),
) -> SpawnedAgent:
    """Start *launch* in the background: in the pane it had, beside its parent, or in a tmux session of its own.

    Args:
        panes: the existing panes, by session id.
        base: the requesting process's variables; if None or empty, those of this process.
        ssh: the command to display an agent on another machine.

    Raises:
        LaunchError: if it names no program, or its files cannot be written to its folder.
        TmuxServerGoneError, TmuxCommandError: if tmux fails.
    """
    if not launch.argv and not launch.machine:
        raise LaunchError(f"session {launch.name!r} has no program to run.")
    nonce = fresh_nonce()
    argv, sandbox = _write_launch(server, paths, launch, nonce, base or os.environ, tuple(ssh))
    had, parent = panes.get(launch.session), panes.get(launch.parent or "")
    if had is not None:
        pane = server.respawn(had.pane_id, argv)
    else:
        pane = server.create(launch.session, argv, parent=parent.session_id if parent else None)
    return SpawnedAgent(pane, identify(pane.pid), nonce, sandbox)


def remove_launch_files(paths: Paths, launch: Launch) -> None:
    """Remove the files that only a starting agent needs: they contain its variables."""
    for name in (SPEC, VARIABLES):
        (paths.folder(launch.session) / name).unlink(missing_ok=True)


def _write_launch(
    server: TmuxServer, paths: Paths, launch: Launch, nonce: str, base: Mapping[str, str], ssh: tuple[str, ...]
) -> tuple[list[str], AgentSandbox | None]:
    """Write the launch files; return the pane's command, and the sandbox if there is one."""
    folder = paths.folder(launch.session)
    if launch.machine:
        shown = attach_argv(RemoteMachine(launch.machine, ssh), launch.session, nonce)
        return _write_view(folder, launch, PaneLaunch(argv=shown, workdir=Path("/"), base=base)), None
    if launch.sandbox is not None:
        own = select_own(own_prefixes(launch.argv), base) | load_variables(paths, launch.session) | environment(launch)
        sandbox = prepare_sandbox(paths, launch, nonce, base, own)
        spec = PaneLaunch(
            argv=sandbox.argv, workdir=Path("/"), base=base, nonce=nonce, program=server.program, socket=server.socket
        )
        return _write_view(folder, launch, spec), sandbox
    program = program_of(launch.argv, launch.agent)
    given_hooks = hooked(program, launch.argv, folder, launch.generation, nonce)
    spec = PaneLaunch(
        argv=given_hooks.argv,
        workdir=Path(launch.workdir),
        base=base,
        env_file=folder / VARIABLES,
        nonce=nonce,
        program=server.program,
        socket=server.socket,
    )
    try:
        own = select_own(own_prefixes(launch.argv), base) | load_variables(paths, launch.session) | environment(launch)
        own |= given_hooks.variables
        own["PATH"] = search_path(paths, {**base, **own})
        if supports_query(launch.argv):
            own.setdefault("HISTCONTROL", "ignorespace")  # kasmon's queries to a shell begin with a blank
        (folder / HOOKS).unlink(missing_ok=True)
        write_environment(folder / VARIABLES, own)
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be started: {error}.") from error
    return launch_argv(folder / SPEC), None


def _write_view(folder: Path, launch: Launch, spec: PaneLaunch) -> list[str]:
    """Return a pane's command to display a remote or sandboxed agent: the displaying program needs no variables."""
    try:
        write_spec(folder / SPEC, spec)
    except (OSError, ValueError) as error:
        raise LaunchError(f"session {launch.name!r} cannot be shown: {error}.") from error
    return launch_argv(folder / SPEC)
