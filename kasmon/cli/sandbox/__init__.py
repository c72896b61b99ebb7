"""`kasmon sandbox`: its commands (`commands`) and their output."""
