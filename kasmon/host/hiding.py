"""Secrets stay out of what is written down: in their place stands how long they are.

Secrets are the values of a session's own variables, where they are long enough and no path of this machine. An agent
may say them all the same, in a command, an output, an error; what goes to the agent is never changed.
"""

import json
import logging
import os
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from kasmon.clean import KNOWN_LENGTH
from kasmon.model.event import RequestOpened
from kasmon.model.permission import Decision

WORDS: Final = frozenset(
    {
        "diff",
        "error",
        "input",
        "labels",
        "last_words",
        "option_notes",
        "options",
        "output",
        "prompt",
        "raw",
        "reason",
        "shown",
        "text",
        "title",
        "why",
    }
)
"""Fields of facts that hold words; in the others stand ids, times and kinds, by which facts are known."""

HIDDEN: Final = "⟨hidden: "
"""What stands in the place of a secret begins with this."""

StructT = TypeVar("StructT", bound=msgspec.Struct)


class Hiding:
    """Hides *secrets* in facts and in lines of text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {value for value in secrets if len(value) >= KNOWN_LENGTH and not _is_path(value)}
        marks = {form: f"{HIDDEN}{len(value.strip())} characters⟩" for value in known for form in _forms(value)}
        self._marks = dict(sorted(marks.items(), key=lambda item: -len(item[0])))

    def fact(self, fact: StructT) -> StructT:
        """*fact* without the secrets; itself where it holds none.

        A request of which something is hidden cannot be edited: whoever did would send the agent what stands there.
        """
        if not self._marks:
            return fact
        hidden = self._within(fact)
        if isinstance(hidden, RequestOpened) and hidden is not fact:
            choices = tuple(choice for choice in hidden.request.choices if choice is not Decision.EDIT)
            request = msgspec.structs.replace(hidden.request, choices=choices)
            return msgspec.structs.replace(hidden, request=request)
        return hidden

    def line(self, text: str) -> str:
        """*text* without the secrets."""
        for form, mark in self._marks.items():
            if form in text:
                text = text.replace(form, mark)
        return text

    def _within(self, struct: StructT) -> StructT:
        changed: dict[str, Any] = {}
        for name in struct.__struct_fields__:
            before = getattr(struct, name)
            after = self._words(before) if name in WORDS else self._below(before)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(struct, **changed) if changed else struct

    def _below(self, value: Any) -> Any:
        """*value*, which is no text to hide in, but may hold structs with some."""
        if isinstance(value, msgspec.Struct):
            return self._within(value)
        if isinstance(value, tuple):
            return _same(value, tuple(self._below(member) for member in value))
        return value

    def _words(self, value: Any) -> Any:
        if isinstance(value, str):
            return _same(value, self.line(value))
        if isinstance(value, list | tuple):
            return _same(value, type(value)(self._words(member) for member in value))
        if isinstance(value, dict):
            return _same(value, {self._words(key): self._words(member) for key, member in value.items()})
        return value


class HidingFormatter(logging.Formatter):
    """Formats a process's own log, without the secrets that *hiding* knows."""

    def __init__(self, form: str, hiding: Hiding) -> None:
        super().__init__(form)
        self._hiding = hiding

    def format(self, record: logging.LogRecord) -> str:
        return self._hiding.line(super().format(record))


def _forms(value: str) -> set[str]:
    """*value* as it may stand in a text: itself, without its line's end, and as JSON writes it."""
    plain = value.strip()
    forms = {plain, *(json.dumps(plain, ensure_ascii=plain_ascii)[1:-1] for plain_ascii in (True, False))}
    return {form for form in forms if len(form) >= KNOWN_LENGTH}


def _is_path(value: str) -> bool:
    return value.startswith("/") and "\0" not in value and os.path.exists(value)  # noqa: PTH110


def _same(before: Any, after: Any) -> Any:
    return before if before == after else after
