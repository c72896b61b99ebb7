"""Checkpoints of a sandbox before and after a turn: its files as git objects, and its interpreters' state."""
