"""A model server on loopback that says what the prompt tells it to say: real agents run against it, offline.

It speaks Anthropic Messages, OpenAI Responses, Chat Completions and Gemini's generateContent, streamed and whole.

    async with ModelStub() as stub:      # in the test's own loop
        stub.url                         # what the agent is told to call
        stub.requests                    # what came in, oldest first
    python -m tests.support.model_stub --port N   # on its own, for trying an agent by hand

How a prompt is written, with all verbs: tests/support/model_stub/script.py.
"""

from tests.support.model_stub.record import Record
from tests.support.model_stub.server import ModelStub

__all__ = ["ModelStub", "Record"]
