"""Where a session runs when it is confined; how it sleeps and comes back. Synchronous: callers bring their own threads."""
