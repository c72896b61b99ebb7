"""`kasmon.ExecutionSession`: one session with the methods of kasmos, its predecessor, in both modes.

CONTRIBUTING.md maps each of kasmos's methods to kasmon's. Differences are documented at each method. Every call has a
time limit of 10 s, unless documented otherwise.

| module | content |
|---|---|
| `session` | the interface, method by method |
| `spec` | the description of a session before its start, the result of a poll, and checks of arguments |
| `terminal` | features of tmux sessions only: keys, menus, sizes, attaching |
"""

from kasmon.execution.session import ExecutionSession
from kasmon.execution.spec import LaunchSpec, Poll

__all__ = ["ExecutionSession", "LaunchSpec", "Poll"]
