"""What a person sees and does: the fleet as it is now, and the acts on it."""
