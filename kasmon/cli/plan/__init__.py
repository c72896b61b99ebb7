"""`kasmon plan`: its commands (`commands`) and their output."""
