"""All that reaches into Textual's internals: screens, repaint, strips, the driver."""
