"""Reads the state of a terminal agent from its screen: pure code, with the rules in one TOML file per agent.

Start at `reader.read`: it applies an agent's rules to a screen. `rule_schema` describes the TOML files, `rule_file`
parses one, and `menu_answer` finds the keys that answer a menu.
"""
