"""Notifications: which changes are a reason for one, and the process that pushes them to services.

`alerts` finds the reasons; the dashboard sends them to the desktop. `notifier` is the process that pushes to the
targets of the config, with or without a dashboard: `push_schedule` decides what each target gets and when, and
`push_sender` sends it.
"""
