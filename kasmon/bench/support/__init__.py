"""Shared parts of the measurements: figures, fleets, terminals, and the cost of processes."""
