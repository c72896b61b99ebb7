"""Sessions of registered machines: what the link to a machine is asked for."""
