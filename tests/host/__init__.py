"""Hosts: in process with an agent that the test plays, then as real processes."""
