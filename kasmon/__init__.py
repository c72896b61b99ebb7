"""A live dashboard and runtime for many coding agents."""

TYPE_CHECKING = False  # `typing` would be a third of what a small process of ours loads
if TYPE_CHECKING:
    from kasmon.errors import InteractiveOnlyError
    from kasmon.execution import ExecutionSession, LaunchSpec, Poll

__all__ = ["ExecutionSession", "InteractiveOnlyError", "LaunchSpec", "Poll", "__version__"]
__version__ = "0.1.0"

_HOMES = {
    "ExecutionSession": "kasmon.execution",
    "InteractiveOnlyError": "kasmon.errors",
    "LaunchSpec": "kasmon.execution",
    "Poll": "kasmon.execution",
}


def __getattr__(name: str) -> object:
    """What is public is imported when it is asked for: `kasmon ls` asks for none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
