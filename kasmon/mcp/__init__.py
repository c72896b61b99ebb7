"""Tools for agents over MCP on stdio: code in sandboxes, and an agent's own place. None answers a permission."""
