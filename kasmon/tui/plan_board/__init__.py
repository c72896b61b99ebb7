"""The wave board: waves as columns, tasks as cards. Start with `controller` and `screen`."""
