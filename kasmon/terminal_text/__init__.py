"""The parser of escape sequences for readers of terminal output. Pure, imports nothing.

- `sequences`: finds requested sequences (titles, clipboard, modes) in output that is cut anywhere.
- `styles`: parses rows with SGR sequences and line drawing into texts with their `TextStyle`.

Three modules have patterns of their own, since they parse no stream: `kasmon.sanitize` removes or shows the sequences
of any text, `kasmon.tui.terminal.sgr` drops those of a captured row before `styles` reads it, and
`kasmon.host.terminal.row_styles` finds a row's hyperlinks.
"""
