"""Run any agent in a terminal: a pane of kasmon's own tmux server. Start at `terminal_backend` and `agent`."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the backend when it is needed: `kasmon explain` needs only how an agent reports its state."""
    if name != "backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kasmon.backends.tmux.terminal_backend import backend

    return backend
