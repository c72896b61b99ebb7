"""The dashboard as a process: the guard of its terminal, and its shutdown."""
