"""The tmux room, on real tmux."""
