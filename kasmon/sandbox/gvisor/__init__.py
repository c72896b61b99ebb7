"""Sandboxes on a kernel in user space, which can write the memory of all that runs on it to disk."""
