"""The dashboard as a process: its start, the guard of its terminal, its suspension, and its shutdown."""
