"""What the agents of a plan know of each other (`context`), and write to each other (`messages`, `delivery`)."""
