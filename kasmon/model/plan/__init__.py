"""Plans: what is to be done by many agents, in which order, and how far it came. Pure, as all of `model`."""
