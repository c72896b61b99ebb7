"""Sandboxes as values: their description (`policy`), their state by events (`state`), and snapshots (`snapshot`)."""
