"""The module name that starts the scripted agent's program: `python -m kasmon.scripted`."""
