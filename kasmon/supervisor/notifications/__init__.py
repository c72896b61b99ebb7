"""Notifications: which changes are a reason for one, and the process that pushes them to services.

`alerts` finds the reasons; the dashboard sends them to the desktop. `notifier` is the process that pushes to targets of
the config and to subscribed browsers, with or without a dashboard: `push_schedule` decides what each gets and when,
`push_sender` sends to a target, such as ntfy on a phone, and `web_push` to the browser of a phone.
"""
