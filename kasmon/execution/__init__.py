"""`kasmon.ExecutionSession`: one session as the ancestor's interface has it, method by method, in both modes.

The table from each of the seed's methods to ours stands in CONTRIBUTING.md. What differs from the seed is said where it
differs. Every call has 10 s, unless it says otherwise.

| module | its idea |
|---|---|
| `session` | the interface, method by method |
| `spec` | what is said before a session starts, and what a poll tells |
| `terminal` | what only a session in tmux has: keys, menus, sizes, somebody who sits at it |
| `extent` | what a caller says: ranges of lines, sizes, keys, decisions |
"""

from kasmon.execution.session import ExecutionSession
from kasmon.execution.spec import LaunchSpec, Poll

__all__ = ["ExecutionSession", "LaunchSpec", "Poll"]
