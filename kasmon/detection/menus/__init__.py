"""Menus on a screen: `choices` parses one, `answer` finds the keys for an answer, `heuristic` guesses that one asks."""
