"""`kasmon notify`: the targets that notifications are pushed to."""
