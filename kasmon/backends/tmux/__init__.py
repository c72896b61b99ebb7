"""Any agent in a terminal: a pane of our own tmux server."""

from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.backend import TmuxBackend, backend
from kasmon.backends.tmux.line import Line
from kasmon.backends.tmux.listening import Listener

__all__ = ["Line", "Listener", "TmuxAgent", "TmuxBackend", "backend"]
