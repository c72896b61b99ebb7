"""The handlers of keys: `general`, `session`, `transcript`, `sandbox`."""
