"""Plans at work: their runner, where their tasks work, how they are checked, and what readers see of them."""
