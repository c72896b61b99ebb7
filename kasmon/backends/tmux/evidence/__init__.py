"""What shows the state of an agent in a terminal: its screen, output, hooks and processes. Start with
`state_monitor`."""
