"""What each agent is driven through, state by state, for its golden screens."""
