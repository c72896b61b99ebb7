"""Idle sessions: whether one may be hibernated, and which to hibernate first (`hibernation`)."""
