"""A sandbox on the dashboard: its status, its screen, and the fork dialog."""
