"""All code that uses Textual's internals: the app, screens, inputs, repaint, strips, timers, the driver.

`tests/tui/textual_ext/test_internals.py` names each of them.
"""
