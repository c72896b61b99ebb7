"""The name under which the scripted agent's program is started: `python -m kasmon.scripted`."""
