"""Values only: no I/O, no async, no clock."""
