"""Interpreters in a sandbox of their own, that sleep and come back: what a session of code talks to."""

from kasmon.backends.interpreter.backend import InterpreterBackend

backend = InterpreterBackend()
