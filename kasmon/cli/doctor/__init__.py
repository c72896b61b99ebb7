"""`kasmon doctor`: its checks and what it can mend. Start with `command`."""
