"""Whom a sandbox may reach: a list of hosts, the proxy that holds to it, and ports that are opened from outside."""
