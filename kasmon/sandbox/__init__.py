"""Sandboxes of sessions: creation, pause, resume, checkpoints. Synchronous: callers bring their own threads.

Start with `base`, what a tier must provide; `tiers` finds a tier by its name, and `managed.sandbox` runs one.

- Tiers: `jail` (bubblewrap), `microvm` (QEMU), `e2b` (a service). Two or more of them use `shared` and `remote_guest`.
- `agent` starts an agent in a sandbox; `guest` runs inside and serves interpreters, and `guest_client` calls it.
- `network` holds the egress proxy and port forwarding; `checkpoint` stores a workspace before and after turns.
- Pause: a tier writes a snapshot, which is the memory, into `shared.snapshot_store`. `SnapshotStore.require_usable`
  refuses one that does not match. A checkpoint is files and the saved state of interpreters.
"""
