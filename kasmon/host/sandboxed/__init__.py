"""Sessions in a sandbox: when an agent is idle, and how its sandbox is paused and resumed. Start with `lifecycle`."""
