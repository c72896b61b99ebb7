"""Commands on what a session changed: `diff` and `undo`."""
