"""A terminal session: its pane (`view`), input (`stdin_tap`) and `scrollback`."""
