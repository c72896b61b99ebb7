"""Measurements of the dashboard: start, events, keys, output, large fleets."""
