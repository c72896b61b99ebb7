"""Claude Code as a structured agent: the user's own `claude`, spoken to over claude-agent-sdk.

| module | its idea |
|---|---|
| `backend` `plan` `introduction` | opening: what is started, what it must say first |
| `command` `history` | the command line and environment; what the agent remembers on disk |
| `agent` `wire` | the running agent: the SDK, the process's lines |
| `translator` | from messages to facts, by `turn` `content` `usage` `limit` `settings` `notice` `known` |
| `asks` `request` | what it waits for, as requests and replies |
| `tool` `diff` `file` `todo` | tools: titles, outputs, diffs, to-do lists |
| `line` | one line of its stdout |

Only `agent` and `wire` import the SDK, and only once an agent is opened.
"""

from kasmon.backends.claude.backend import backend

__all__ = ["backend"]
