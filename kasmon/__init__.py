"""A live dashboard and runtime for many coding agents."""

__version__ = "0.1.0"
