"""Watcher sessions: their prompts are fed by what other sessions do. Start at `feeder`."""
