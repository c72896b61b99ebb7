"""The microvm tier: virtual machines with their own kernel, whose memory can be saved to disk and resumed."""
