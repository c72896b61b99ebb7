"""`kasmon limits`: the usage limits of the accounts of all agents."""
