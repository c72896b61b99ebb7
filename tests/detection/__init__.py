"""What a screen says: golden screens of real agents, and what no screen may do."""
