"""The operations behind CLI and dashboard: the current fleet, and what a user can do with its sessions.

Start at `fleet.snapshot.read_fleet` (the fleet once), `fleet.watch.FleetWatch` (the fleet as it changes) and
`sessions.session_operations` (start, send, stop). The other folders are one feature each: `plans/` (start
at `plans.runner`), `sandboxes/` (at `sandboxes.sandbox_operations`), `recovery/`, `search/` and `worktrees/`.
"""
