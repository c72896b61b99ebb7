"""The scrollback of a terminal: `screen` shows it, `view` draws rows of a `buffer`."""
