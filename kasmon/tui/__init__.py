"""The Textual dashboard: widgets get values as attributes and post commands upwards as messages.

Start at `app.Kasmon`. `keymap` has every key and names what has its handler, `main_view` is the main screen, and
`gateway/` is the only part that does I/O. Each other folder is one feature; `textual_ext/` has all use of Textual's
internals.
"""
