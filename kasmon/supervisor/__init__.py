"""The operations behind CLI and dashboard: the current fleet, and what a user can do with its sessions."""
