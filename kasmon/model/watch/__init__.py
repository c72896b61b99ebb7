"""Watcher sessions: what they are told, and how often."""
