"""Recorded talks with the real agent (Claude Code 2.1.330), played into the translator as its lines came.

Each line of a recording is `{"from": MESSAGE}`, said by the agent, or `{"to": MESSAGE}`, said to it. They were recorded
against a model stub; paths, sizes of lists and ports were cut down afterwards.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from kasmon.backends.base import Chunk
from kasmon.backends.claude.messages import UnparsedLine
from kasmon.backends.claude.settings import ClaudeSettings
from kasmon.backends.claude.translator import ClaudeTranslator
from kasmon.backends.claude.usage import ClaudeUsage
from kasmon.model.commands import ConversationUsage, Launch, Mode, Prompt
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created

FOLDER = Path(__file__).parents[2] / "backends" / "claude" / "recorded"
NOTHING = ConversationUsage()
Fact = TypeVar("Fact", bound=Event)


class Played:
    """What the translator made of messages so far, and the session that it adds up to."""

    def __init__(
        self, conversation: str = "", used: ConversationUsage = NOTHING, carried: ConversationUsage = NOTHING
    ) -> None:
        settings = ClaudeSettings(conversation, may_bypass=False)
        self.translator = ClaudeTranslator(SessionId("s"), settings, ClaudeUsage(used, carried))
        self.all: list[Event | Chunk] = []
        self.session: Session = created(
            Launch(session=SessionId("s"), name="s", agent="claude", mode=Mode.SDK, backend="claude"), 0.0
        )

    def hear(self, message: dict[str, Any] | UnparsedLine, before: str | None = None) -> "Played":
        for event in self.translator.translate(message, time.time(), before):
            self.all.append(event)
            if not isinstance(event, Chunk):
                self.session = apply(self.session, event)
        return self

    def play(self, name: str) -> "Played":
        """Play a whole recording; the prompts in it count as given."""
        for to, message in recorded(name):
            if not to:
                self.hear(message)
            elif message["type"] == "user":
                text = message["message"]["content"]
                self.translator.turns.record_prompt(message["uuid"], Prompt(text=text))
            elif message["type"] == "control_response":
                self.answered(message["response"]["request_id"])
        return self

    def answered(self, call: str) -> None:
        """What the agent asked as *call* was answered, when this was recorded."""
        for event in self.translator.requests.withdraw(call, "answered", time.time()):
            self.session = apply(self.session, event)

    @property
    def facts(self) -> list[Event]:
        return [event for event in self.all if not isinstance(event, Chunk)]

    @property
    def kinds(self) -> list[str]:
        """The names of the facts' kinds, in order."""
        return [type(fact).__name__ for fact in self.facts]

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def written(self, *, thinking: bool = False) -> str:
        """What was shown while it was written."""
        return "".join(event.text for event in self.all if isinstance(event, Chunk) and event.thinking is thinking)


def recorded(name: str) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The messages of a recording, each with whether it went to the agent."""
    for line in (FOLDER / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        yield "to" in entry, entry.get("to") or entry["from"]


def said(name: str, kind: str) -> dict[str, Any]:
    """The first message of type *kind* that the agent says in a recording."""
    return next(message for to, message in recorded(name) if not to and message["type"] == kind)
