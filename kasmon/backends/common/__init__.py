"""What several backends use: a child process that speaks in lines, its environment, its version, MCP elicitation."""
