"""The scripted agent as a terminal program with a small screen of its own: `python -m kasmon.scripted`."""
