"""The processes that run agents, and how to reach them.

Start at `structured/` (one host per session) or `terminal/` (one host for all tmux sessions); `sandboxed/` puts an
agent into a sandbox. `session/` has requests and prompts of either kind, `journal/` writes the log, and `rpc/` has the
sockets: `rpc.connect.link` finds or starts a session's host.
"""
