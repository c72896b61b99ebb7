"""An agent's program in a sandbox: how it starts (`launch`), what it gets, and whether it is confined (`identify`)."""
