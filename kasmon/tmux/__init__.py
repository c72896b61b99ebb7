"""What kasmon knows of tmux: its own server, and one control client that hears every pane."""
