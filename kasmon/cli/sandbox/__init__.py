"""`kasmon sandbox`: its verbs (`commands`) and what they print."""
