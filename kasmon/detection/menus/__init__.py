"""Menus on a screen: `choices` parses one, `answer` finds the keys that answer it, `heuristic` guesses that one asks."""
