"""Reads the state of a terminal agent from its screen: pure code, with the rules in one TOML file per agent."""
