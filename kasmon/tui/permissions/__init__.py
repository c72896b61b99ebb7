"""Permission requests: the card (`card`), the inbox (`inbox_screen`), and which request is shown (`queue`)."""
