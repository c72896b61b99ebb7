"""The commands' typed signatures, by topic; each calls one function of a command's module."""
