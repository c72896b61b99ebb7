"""Code shared by tiers whose guest cannot listen on a socket of this machine."""
