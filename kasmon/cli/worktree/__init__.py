"""Commands on the worktrees of sessions: list and remove them, show what changed in one, and undo it."""
