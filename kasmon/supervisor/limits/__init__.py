"""Accounts and their usage limits: `account` has the variables of a log-in and copies conversations.

`permission` records what a person allows to be resumed after a limit, and `resumer` does it.
"""
