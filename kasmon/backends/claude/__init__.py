"""Claude Code as a structured agent: the user's own `claude`, controlled over claude-agent-sdk.

| module | purpose |
|---|---|
| `backend` `handshake` | opening: what is started, what the agent must report first |
| `command_line` `history` | the command line and environment; the agent's transcripts on disk |
| `agent` `transport` | the running agent: the SDK, the process's lines |
| `translator` | messages to events, by `turns` `content` `usage` `settings` `notices` `known_messages` |
| `requests` `control_request` `elicitation` | what the agent waits for, as requests and replies |
| `tool_text` `diff` | tools: titles, outputs, diffs |
| `stdout_line` | one line of its stdout |

Only `agent` and `transport` import the SDK, and only once an agent is opened.
"""

from kasmon.backends.claude.backend import backend

__all__ = ["backend"]
