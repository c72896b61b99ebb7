"""The scripted agent: it plays a script, deterministically by seed, without a clock. For tests, demo and bench.

`script.parse` reads a script, `agent.Actor` plays it, `terminal/` is its program with a screen of its own."""
