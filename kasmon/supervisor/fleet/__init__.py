"""The state of all sessions. Start at `snapshot.read_fleet`, then `watch.FleetWatch`; `follower` drives the watch."""
