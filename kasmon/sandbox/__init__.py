"""Where a session runs when it is confined; how it sleeps and comes back. Synchronous: threads are the callers' own."""
