"""The menu of an open request: numbered choices, answered by a digit or by arrows and Enter."""

from typing import Final, NamedTuple

from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, RequestKind
from kasmon.model.transcript.text import Span, TextLine, Token, wrap, wrap_paragraphs
from kasmon.sanitize import visible
from kasmon.scripted_agent.scripted_requests import SIGN_IN
from kasmon.scripted_agent.terminal.keyboard import Key

TITLES: Final = {
    RequestKind.PERMISSION: "Do you want to proceed?",
    RequestKind.QUESTION: "",
    RequestKind.PLAN: "Shall I begin?",
    RequestKind.AUTH: SIGN_IN,
}

DIGITS: Final = "123456789"
"""Keys that answer at once; choices after the ninth are reached by arrows."""


class ScriptedChoice(NamedTuple):
    """One choice of a menu, and the answer that it gives."""

    label: str
    decision: Decision
    labels: tuple[str, ...] = ()


class ScriptedMenu:
    """One open request and the marked choice."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.choices = _choices(request)
        self._marked = 0
        self._ticked: set[str] = set()

    def press(self, key: Key) -> Answer | None:
        if key.name in ("up", "down"):
            self._marked = (self._marked + (1 if key.name == "down" else -1)) % len(self.choices)
        elif key.name == "enter":
            return self._answer(self.choices[self._marked])
        elif key.name == "text":
            return next((answer for character in key.text if (answer := self._handle_character(character))), None)
        return None

    def rows(self, width: int, waiting: int) -> list[TextLine]:
        """Return the menu's rows at *width*; *waiting* is the number of open requests."""
        request = self.request
        more = f" (1 of {waiting})" if waiting > 1 else ""
        subject = visible(request.title) if request.kind is not RequestKind.AUTH else "sign in"
        head: list[Span] = [(f"{request.tool or request.kind.value}{more} ", Token.ASKS), (subject, Token.SUBJECT)]
        rows = wrap_paragraphs(head, width)
        if title := TITLES[request.kind]:
            rows += wrap([(title, Token.TEXT)], width)
        for number, choice in enumerate(self.choices, 1):
            mark = "❯ " if number - 1 == self._marked else "  "
            tick = ("[x] " if choice.label in self._ticked else "[ ] ") if self._ticks(choice) else ""
            token = Token.PROMPT if mark.strip() else Token.TEXT
            margin = ((f"{mark}{number}. ", token),)
            rest = ((" " * len(margin[0][0]), token),)
            rows += wrap([(tick + visible(choice.label), token)], width, margin, rest)
        return rows

    def _handle_character(self, character: str) -> Answer | None:
        if character == " " and self.request.many:
            return self._pick(self.choices[self._marked])
        if character in DIGITS and int(character) <= len(self.choices):
            self._marked = int(character) - 1
            return self._pick(self.choices[self._marked])
        return None

    def _ticks(self, choice: ScriptedChoice) -> bool:
        return self.request.many and choice.decision is Decision.CHOOSE and bool(choice.labels)

    def _pick(self, choice: ScriptedChoice) -> Answer | None:
        if not self._ticks(choice):
            return self._answer(choice)
        self._ticked ^= {choice.label}
        return None

    def _answer(self, choice: ScriptedChoice) -> Answer:
        labels = choice.labels
        if self._ticks(choice):
            ticked = self._ticked or {choice.label}
            labels = tuple(label for label in self.request.options if label in ticked)
        return Answer(request=self.request.id, digest=self.request.digest, decision=choice.decision, labels=labels)


def _choices(request: Request) -> list[ScriptedChoice]:
    match request.kind:
        case RequestKind.PERMISSION:
            always = f"Yes, and don't ask again for: {request.rule}"
            return [
                ScriptedChoice("Yes", Decision.ALLOW),
                *([ScriptedChoice(always, Decision.ALWAYS)] if request.rule else []),
                ScriptedChoice("No", Decision.DENY),
            ]
        case RequestKind.QUESTION:
            options = [ScriptedChoice(label, Decision.CHOOSE, (label,)) for label in request.options]
            return [*options, ScriptedChoice("None of these", Decision.DENY)]
        case RequestKind.PLAN:
            return [ScriptedChoice("Yes, begin", Decision.ALLOW), ScriptedChoice("No, keep planning", Decision.DENY)]
        case RequestKind.AUTH:
            return [ScriptedChoice("I have signed in", Decision.ALLOW), ScriptedChoice("Not now", Decision.DENY)]
