"""kasmon as an agent of the Agent Client Protocol, for editors over stdio.

Start at `server`. `served_session` follows one session for an editor, `updates` converts its events, `permissions` its
requests, and `connection` is the link to the editor. `updates` and `permissions` do not know the SDK.
"""
