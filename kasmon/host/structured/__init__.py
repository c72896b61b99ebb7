"""The host of one agent that speaks a protocol. Start with `host`; `agent_runner` holds the agent."""
