"""The only I/O of the dashboard: `protocol` is the interface, `live/` implements it over logs and hosts."""
