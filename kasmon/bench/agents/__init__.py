"""Measurements of agents and their hosts: starts, processes, detection of their state."""
