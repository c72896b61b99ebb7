"""The processes that talk to agents, and the way to reach them."""
