"""Reducers from a session's events to its state, a module per kind of event. The entry point is `apply.apply`."""
