"""The view of a structured session: its transcript (`view`, drawn and read by `event_view`), and its prompt box."""
