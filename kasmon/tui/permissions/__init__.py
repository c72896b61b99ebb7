"""Permission requests: the card (`card`), the inbox (`inbox`), and which request is shown (`queue`)."""
