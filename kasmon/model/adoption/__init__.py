"""What kasmon may adopt: panes of the user's own tmux (`pane_candidate`), background sessions of Claude Code."""
