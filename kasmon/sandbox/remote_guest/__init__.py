"""What tiers share whose agent inside cannot listen on a socket of this machine."""
