"""The host of all sessions in tmux. Start with `host`; `session` is one session, `agent_runner` its agent.

Output of a pane is not drawn: it marks the screen as changed, and `screen_capture` reads the screen from tmux again.
"""
