"""A live dashboard and runtime for many coding agents.

CONTRIBUTING.md has a map of the packages, and follows an event, a command, a key and a prompt through them.
"""

TYPE_CHECKING = False  # importing `typing` would take a third of the load time of a small kasmon process
if TYPE_CHECKING:
    from kasmon.errors import InteractiveOnlyError, KasmonError
    from kasmon.execution import ExecutionSession, LaunchSpec, Poll
    from kasmon.model.permission import Decision, Request

__all__ = [
    "Decision",
    "ExecutionSession",
    "InteractiveOnlyError",
    "KasmonError",
    "LaunchSpec",
    "Poll",
    "Request",
    "__version__",
]
__version__ = "0.1.0"

_HOMES = {
    "Decision": "kasmon.model.permission",
    "ExecutionSession": "kasmon.execution",
    "InteractiveOnlyError": "kasmon.errors",
    "KasmonError": "kasmon.errors",
    "LaunchSpec": "kasmon.execution",
    "Poll": "kasmon.execution",
    "Request": "kasmon.model.permission",
}


def __getattr__(name: str) -> object:
    """Import a public name on first access; `kasmon ls` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
