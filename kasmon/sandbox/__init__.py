"""Sandboxes of sessions: creation, pause, resume, checkpoints. Synchronous: callers bring their own threads."""
