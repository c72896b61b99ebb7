"""Network access of sandboxes: an allowlist of hosts, the proxy that enforces it, and ports forwarded from outside."""
