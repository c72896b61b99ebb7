"""The plan board: stages as columns, tasks as cards. Start with `controller` and `screen`."""
