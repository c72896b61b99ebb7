"""Git worktrees: made (`worktree`), what they changed (`changes`), collisions between them, unsaved work."""
