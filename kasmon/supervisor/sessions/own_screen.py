"""The agent's own screen of a structured session: codex's, where its app-server listens on a socket.

Other conversations of that screen (`/new`, `/resume`) get the permissions of the user's config. It takes none from its
command line: 0.169 and 0.171 end with "Permission overrides are not supported when resuming a remote task".
"""

import os
from pathlib import Path
from typing import NamedTuple

from kasmon.backends.codex.cli_flags import has_permissions
from kasmon.backends.codex.program_path import find_program
from kasmon.backends.codex.shared_server import screen_argv
from kasmon.backends.common.environment import load_variables
from kasmon.errors import InteractiveOnlyError
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.store.session_reader import load_launch

CODEX = "codex"
"""The backend whose agents have a screen that can join."""


class OwnScreen(NamedTuple):
    """How the screen is started, in a terminal."""

    argv: tuple[str, ...]
    variables: dict[str, str]
    """Its whole environment."""
    workdir: Path


def find_own_screen(paths: Paths, session: Session) -> OwnScreen:
    """Return how the agent's own screen shows the conversation of *session*, which continues here meanwhile.

    Raises:
        InteractiveOnlyError: if the agent has none that can, it does not listen, or the session has permission flags;
            the message says why.
        AgentNotFoundError: if its program no longer exists.
    """
    if session.backend != CODEX:
        raise InteractiveOnlyError(session.name)
    if session.sandbox:
        raise InteractiveOnlyError(session.name, why="codex's own screen does not reach into its sandbox")
    if session.state not in ALIVE or not session.resume_id:
        raise InteractiveOnlyError(session.name, why="its codex does not run")
    socket = paths.shared_server(session.id)
    if not socket.is_socket():
        raise InteractiveOnlyError(session.name, why="its codex does not listen on a socket; newer versions do")
    launch = load_launch(paths, session.id)
    if has_permissions(launch.argv[1:], launch.permission_mode):
        why = "codex's own screen would not apply this session's permission flags to other conversations (`/new`)"
        raise InteractiveOnlyError(session.name, why=why)
    variables = {**os.environ, **load_variables(paths, session.id)}
    program = find_program(launch.agent, launch.argv[0], variables)
    return OwnScreen(screen_argv(program, session.resume_id, socket), variables, Path(launch.workdir))
