"""Code that all tiers share: folders of this machine, safe file trees, credentials, processes, snapshots on disk.

`guest_paths` has the paths inside, `host_folders` resolves the folders of this machine that a jail has or gets, and
`safe_tree` walks trees that a guest may have changed. `snapshot_store` writes snapshots.
`SnapshotStore.require_usable` refuses one (`SnapshotRefusedError`) that was used or is stale, foreign or damaged;
`check_snapshot` returns the reason. The rule is `kasmon.model.sandbox.snapshot.refusal`.
"""
