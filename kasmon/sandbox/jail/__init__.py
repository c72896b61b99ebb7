"""The jail: a session confined by bubblewrap, without root; how it is made, frozen, metered and proven."""
