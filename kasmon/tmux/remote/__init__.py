"""Remote agents and tasks over ssh: scripts that run on another machine for an `agent` or a `task`; see `ssh`."""
