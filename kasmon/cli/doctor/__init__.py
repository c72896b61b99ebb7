"""`kasmon doctor`: its checks and its fixes. Start with `command`."""
