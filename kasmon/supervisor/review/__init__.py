"""Operations of the review of a session's changes, shared by the command line and the dashboard.

`comments` writes, lists and sends comments on lines; `hunks` reverts and stages single hunks.
"""
