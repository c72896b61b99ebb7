"""Code that all tiers share: folders of this machine, safe file trees, credentials, processes, snapshots on disk."""
