"""The one parser of escape sequences for all readers of terminal output. Pure, imports nothing.

- `sequences`: finds requested sequences (titles, clipboard, modes) in output that is cut anywhere.
- `styles`: parses rows with SGR sequences and line drawing into texts with their `TextStyle`.
"""
