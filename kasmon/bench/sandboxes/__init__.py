"""Measurements of sandboxes: start, runs, checkpoints, snapshots."""
