"""What sandboxes cost: start, runs, checkpoints, snapshots."""
