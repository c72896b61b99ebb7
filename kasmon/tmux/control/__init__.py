"""tmux's control mode: `client` runs one `tmux -C`, `protocol` parses its output, `requests` are the commands."""
