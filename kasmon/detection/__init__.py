"""Reads the state of a terminal agent from its screen: pure code, with the rules in one TOML file per agent.

Start at `reader.read`: it applies an agent's rules to a screen. `rules/` loads the TOML files, and `menus/` finds
the keys that answer a menu.
"""
