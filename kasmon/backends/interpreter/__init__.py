"""The backend for interpreter sessions: code runs in a sandbox that can be paused and resumed."""

from kasmon.backends.interpreter.backend import InterpreterBackend

backend = InterpreterBackend()
