"""Reads what the screen of a terminal agent shows: pure code, with the rules in one TOML file per agent.

Start at `reader.read`: it applies an agent's rules to a screen. The session's state is decided from that and the other
signals by `kasmon/model/evidence.py:judge`. `rules/` loads the TOML files, and `menus/` finds
the keys that answer a menu.
"""
