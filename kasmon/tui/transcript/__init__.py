"""A structured session: its transcript (`view`), how it is read (`reading_view`), and its prompt box."""
