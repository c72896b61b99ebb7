"""Plans that run: `start` stores one, `runner` executes it, `boards` shows all, `decisions` has what a user decides."""
