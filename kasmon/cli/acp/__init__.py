"""`kasmon acp`, for editors."""
