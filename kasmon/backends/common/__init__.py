"""What several backends use: a line-based child process, its environment, its version, MCP elicitation."""
