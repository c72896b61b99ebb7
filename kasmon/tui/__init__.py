"""The Textual dashboard: widgets get values as attributes and post commands upwards as messages."""
