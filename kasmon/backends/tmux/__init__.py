"""Run any agent in a terminal: a pane of kasmon's own tmux server."""

from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.backend import TmuxBackend, backend
from kasmon.backends.tmux.pane_events import PaneListener
from kasmon.backends.tmux.server_connection import ServerConnection

__all__ = ["PaneListener", "ServerConnection", "TmuxAgent", "TmuxBackend", "backend"]
