"""The agents that kasmon knows, as data: one folder for each, with the name of its program.

A folder has `profile.toml` (schema: `profile`), screen rules (`screen*.toml`, schema:
`kasmon.detection.rules.schema`), the recorded screens that the rules are tested with (`VERSION/CASE/`), and a README.
`catalog.find` returns what is known of a program. docs/agents.md shows how to add one.
"""
