"""Backends: protocols by which kasmon talks to agents, one package each. No backend imports another.

Start at `base.Backend` and `base.Agent`, the contract. `tmux/` reads screens and types; `claude/`, `codex/` and `acp/`
speak an agent's own protocol; `interpreter/` runs code in a sandbox. What they share is in `common/`.
"""

from importlib import import_module

from kasmon.backends.base import Backend
from kasmon.errors import UsageError

GROUP = "kasmon.backends"


def names() -> list[str]:
    """Return the names of all installed backends; imports none of them."""
    from importlib.metadata import entry_points  # imported late: it loads the email package

    return sorted(point.name for point in entry_points(group=GROUP))


def load(name: str) -> Backend:
    """Return the backend called *name*; imports exactly that one.

    Raises:
        UsageError: if no installed backend has that name.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        module, _, attribute = point.value.partition(":")
        backend: Backend = getattr(import_module(module), attribute)
        return backend
    raise UsageError(f"unknown backend {name!r}.", hint=f"Installed: {', '.join(names()) or 'none'}.")
