"""Sandboxes as microVMs at the service E2B: paused there with their memory, and found again by their id."""
