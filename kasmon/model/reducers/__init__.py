"""The session's state from its events. Start at `apply.apply`, which calls the other modules, one for each topic."""
