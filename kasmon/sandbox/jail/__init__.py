"""The jail tier: sandboxes made by bubblewrap, without root. `jail` creates them, `freeze` pauses, `proof` verifies."""
