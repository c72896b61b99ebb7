"""The host's side of `guest/`: requests to the guest program in a sandbox. Start with `channel`."""
