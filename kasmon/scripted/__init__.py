"""`python -m kasmon.scripted` starts the program of `kasmon.scripted_agent`; logs have this name, so it stays."""
