"""The host of all sessions in tmux. Start with `host`; `session` is one session, `agent_runner` its agent."""
