"""The command line. `options/` holds the commands' typed signatures; each command is implemented in its own module."""
