"""Search of all sessions: its controller, screen and results."""
