"""What the model stub remembers of a request, for tests to look at."""

from typing import TypedDict

from tests.support.model_stub.script import Step


class Record(TypedDict, total=False):
    """One request. The first line is there for every one, the rest for those that ask the model for something."""

    n: int
    """Counted from 1."""
    at: float
    """When it came, UTC seconds."""
    method: str
    path: str
    agent: str
    """The client's name of itself (its User-Agent)."""
    reply: str
    """`stream`, `whole`, `fail 529`, `malformed`, `drop`, `hang`, `client left`, or what else was answered."""
    took_s: float

    api: str
    """`anthropic`, `responses`, `chat` or `gemini`."""
    model: str
    tools: tuple[str, ...]
    """The names of those that the client offers."""
    user: str
    """The latest text of the user."""
    users: tuple[str, ...]
    """All texts of the user in the conversation, oldest first: what the agent remembers."""
    results: tuple[str, ...]
    """What the tools gave since the latest script."""
    images: int
    """How many pictures the conversation has."""
    aux: bool
    """The client asks for itself (a title, a summary), not for the agent's turn."""
    steps: tuple[Step, ...]
    """What the model did."""
