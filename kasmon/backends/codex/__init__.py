"""Codex through its own app-server: JSON-RPC lines over its stdin and stdout, nothing approved that nobody answered.

| module | its idea |
|---|---|
| `backend` `program` `flags` `start` | opening: which program, with which settings, in which conversation |
| `agent` `wire` `wishes` | the running agent: its process, its line, what people wish of it |
| `talk` | from messages to facts, by `work` `item` `diff` `given` `meter` `settings` `notices` |
| `asks` `ask` `approval` `question` | what it waits for, as requests and replies |
"""

from kasmon.backends.codex.backend import CodexBackend, backend

__all__ = ["CodexBackend", "backend"]
