"""What a sandbox is to be (`policy`), what its events add up to (`state`), and its snapshots (`snapshot`)."""
