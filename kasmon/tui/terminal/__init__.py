"""A terminal session: its pane (`view`), input (`stdin_tap`, `input_sender`) and scrollback."""
