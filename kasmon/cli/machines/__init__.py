"""Registered machines: `kasmon machines` and `kasmon bus`."""
