"""The changes of a session for review: files and hunks of a diff, words that changed, comments on lines. Pure.

`file_changes.split` parses a diff, `hunks.parse` the lines of one file.
"""
