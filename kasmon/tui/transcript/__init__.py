"""The view of a structured session: its transcript (`view`), how it is read (`reading_view`), its prompt box."""
