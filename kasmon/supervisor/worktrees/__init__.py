"""Git worktrees: create them (`worktree`), their changes (`changes`), collisions between them, unsaved work."""
