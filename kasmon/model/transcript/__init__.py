"""A session's events as rows of text, drawn lazily.

`layout.Transcript` holds a session's blocks and their rows, `blocks` renders events, `search` finds text in them.
"""
