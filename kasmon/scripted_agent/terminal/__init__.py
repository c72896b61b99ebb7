"""The scripted agent as a program of the terminal, with a small screen of its own: `python -m kasmon.scripted`."""
