"""The list of sessions for a phone, after a login: `handler` checks requests, `html` renders, `event_streams` streams.

Start with `handler.FleetPages.handle`.
"""
