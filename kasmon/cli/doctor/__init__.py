"""`kasmon doctor`: its checks and its fixes; and `kasmon --version --json`. Start with `command`."""
