"""What the dashboard costs: start, events, keys, output, large fleets."""
