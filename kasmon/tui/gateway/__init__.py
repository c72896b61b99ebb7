"""The only I/O of the dashboard: `protocol` is what it needs, `live` gives it from logs and hosts."""
