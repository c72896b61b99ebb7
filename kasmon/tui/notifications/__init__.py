"""Notifications to the user: toasts, the bell, the desktop and the user's own command. Start with `controller`."""
