"""The dashboard: values come down as attributes, wishes go up as messages."""
