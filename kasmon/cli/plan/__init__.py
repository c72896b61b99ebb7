"""`kasmon plan`: its verbs (`commands`) and what they print."""
