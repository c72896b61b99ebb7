"""Sandboxes of sessions: creation, pause, resume, checkpoints. Synchronous: callers bring their own threads.

Start at `base` (the contract of a tier), then `managed.sandbox` (one sandbox through its life). The tiers are `jail/`,
`microvm/` and `e2b/`, listed in `tiers`. `guest/` runs inside a sandbox, and `guest_client/` talks to it.
"""
