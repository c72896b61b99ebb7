"""What the measurements share: figures, fleets, terminals, and the cost of a process."""
