"""Values and pure functions: no I/O, no async, no clock."""
