"""What a terminal's escape sequences say: the one tokenizer for all readers of terminal output. Pure, imports nothing.

- `sequences`: finds the sequences that a reader asks for (titles, clipboard, modes) in output cut into any pieces.
- `styles`: reads rows that hold SGR sequences and line drawing: which text has which `TextStyle`.
"""
