"""Colours and looks: the theme files, the user's settings, and how values are displayed (`look`)."""
