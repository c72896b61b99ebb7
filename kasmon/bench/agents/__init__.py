"""What agents and their hosts cost: starts, processes, detection of their state."""
