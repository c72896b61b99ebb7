"""The dashboard as a process: the terminal's guard, shutdown, and the error log."""
