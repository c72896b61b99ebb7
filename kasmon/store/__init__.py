"""What kasmon stores on disk: append-only event logs, and caches and indexes that can be rebuilt from them."""
