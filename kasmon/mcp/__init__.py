"""MCP tools for agents over stdio: code in sandboxes, and an agent's own task. None answers a permission request.

Start at `server`, which alone imports the SDK. `sandbox_tools` and `session_tools` have the tools, and
`client_identity` decides which session a client is.
"""
