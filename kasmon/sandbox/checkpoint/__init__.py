"""What of a sandbox is kept before and after a turn: its files as git objects of our own, and what came of it."""
