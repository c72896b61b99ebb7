"""The jail tier: sandboxes made by bubblewrap, without root. `jail` creates them, `cgroup` pauses, `proof` verifies."""
