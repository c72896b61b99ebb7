"""What a client asks for, in whatever API: brought down to what the stub needs to answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tests.support.model_stub.script import By, Message, Position, place


@dataclass(frozen=True)
class Tool:
    """A tool that the client offers."""

    takes_text: bool = False
    """It takes one text in place of JSON."""
    namespace: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The JSON schema of its arguments; empty where it is of no account."""


TITLES: Final = frozenset({"session_title", "respond_in_schema"})
"""Tools that a client offers alone, to get a title (grok) or the verdict of a classifier (qwen)."""


@dataclass(frozen=True)
class Asked:
    """One request for the model's next turn, or for something that the client wants for itself."""

    api: str
    model: str
    streams: bool
    tools: Mapping[str, Tool]
    talk: tuple[Message, ...]
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    """The answer must be JSON of this schema (which may be empty)."""
    plan_file: str = ""
    """Where the client wants a plan written before it is shown."""
    edits_in_text: bool = False
    """The client has no tools: it reads edits and commands in the model's text (aider)."""
    is_after_turn: bool = False
    """The turn is over, and a reminder asks for something else: a line about the turn, or a title (grok)."""

    @property
    def is_aux(self) -> bool:
        """A title or a summary, which carries the user's prompt, too: no tools, JSON of a schema, or after a turn."""
        no_turn = self.tools.keys() <= TITLES or self.schema is not None or self.is_after_turn
        return no_turn and not self.edits_in_text

    @cached_property
    def place(self) -> Position:
        return place(self.talk)

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(text for by, text in self.talk if by is By.USER)


TITLE: Final = "Stub title"


def example(schema: Mapping[str, Any]) -> Any:
    """A value that *schema* allows."""
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[0]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return example(options[0])
    kind = schema.get("type")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object" or "properties" in schema:
        return {name: example(of) for name, of in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema["items"])] if schema.get("minItems") else []
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": False, "null": None}.get(kind, TITLE)


def text_of(content: Any) -> str:
    """The text in *content*: a string, or blocks of which some hold text."""
    if isinstance(content, str):
        return content
    blocks = [block if isinstance(block, str) else block.get("text") for block in content or ()]
    return "\n".join(text for text in blocks if isinstance(text, str))
