"""Sessions that kasmon did not start: panes of the user's own tmux (`panes`), Claude Code's own background sessions
(`background`)."""
