"""What a terminal agent's screen says: pure rules, and one TOML file for each agent."""
