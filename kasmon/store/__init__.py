"""Facts on disk: append-only logs, and an index that can always be rebuilt from them."""
