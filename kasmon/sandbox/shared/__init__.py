"""What all tiers use: folders of this machine, safe file trees, credentials, processes, snapshots on disk."""
