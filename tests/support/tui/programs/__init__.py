"""Programs that the tests of the TUI run in a terminal of their own."""
