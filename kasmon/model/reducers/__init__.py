"""What the facts of one session add up to, a room for each kind of fact. The way in is `apply.apply`."""
