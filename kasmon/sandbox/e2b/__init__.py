"""Sandboxes at a service that runs microVMs: kept there with their memory, and found again by their id."""
