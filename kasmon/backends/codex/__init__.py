"""Codex through its own app-server: JSON-RPC lines over stdin and stdout; nothing is approved without an answer.

| module | purpose |
|---|---|
| `backend` `program_path` `cli_flags` `thread_start` | opening: the program, its settings, the conversation |
| `agent` `transport` `commands` | the running agent: its process, its connection, the commands sent to it |
| `translator` | messages to events, by `item_tracker` `items` `diff` `usage` `settings` `notices` |
| `request_registry` `request` `approvals` `questions` | what it waits for, as requests and replies |
"""

from kasmon.backends.codex.backend import CodexBackend, backend

__all__ = ["CodexBackend", "backend"]
