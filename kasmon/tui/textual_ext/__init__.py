"""All code that uses Textual's internals: screens, repaint, strips, the driver."""
