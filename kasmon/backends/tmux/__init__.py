"""Run any agent in a terminal: a pane of kasmon's own tmux server.

Its names are imported when they are used: `kasmon explain` needs only how an agent reports its state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kasmon.backends.tmux.agent import TmuxAgent
    from kasmon.backends.tmux.pane_events import PaneListener
    from kasmon.backends.tmux.server_connection import ServerConnection
    from kasmon.backends.tmux.terminal_backend import TmuxBackend, backend

__all__ = ["PaneListener", "ServerConnection", "TmuxAgent", "TmuxBackend", "backend"]

MODULES: Final = {
    "PaneListener": "pane_events",
    "ServerConnection": "server_connection",
    "TmuxAgent": "agent",
    "TmuxBackend": "terminal_backend",
    "backend": "terminal_backend",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
