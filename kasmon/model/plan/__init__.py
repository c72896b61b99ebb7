"""Plans: tasks for many agents, their order, and their progress. Pure, as all of `model`."""
