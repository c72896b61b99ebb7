"""The managed sandbox: created, used, paused, resumed, healed and forked. Start with `sandbox`."""
