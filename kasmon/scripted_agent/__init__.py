"""The scripted agent: it follows a script, with a seed and without a clock. Tests, the demo and the bench use it.

`script.parse` reads a script, `agent.Actor` plays it, `terminal/` is its program with a screen of its own."""
