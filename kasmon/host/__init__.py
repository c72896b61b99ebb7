"""The processes that run agents, and how to reach them."""
