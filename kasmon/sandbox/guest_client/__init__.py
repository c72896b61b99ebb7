"""The outside half of `guest/`: requests to the interpreters in a sandbox. Start with `channel`."""
