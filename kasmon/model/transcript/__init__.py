"""A session's events as rows of text, drawn only as far as they are read.

`layout.Transcript` holds a session's blocks and their rows, `blocks` makes blocks of events, `search` finds text in
them."""
