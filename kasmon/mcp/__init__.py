"""MCP tools for agents over stdio: code in sandboxes, and an agent's own task. None answers a permission request."""
