"""Redacts secrets from what is written: a mark with their length replaces them.

Secrets are the session's known secret values, if they are long enough and not an existing path of this machine, and
whatever has the shape of a token. An agent may still print them, in a command, an output, an error; what is sent to
the agent is never changed.
"""

import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from kasmon.model.events import RequestOpened
from kasmon.model.permission import Decision
from kasmon.model.request_groups import strings
from kasmon.sanitize import HIDDEN, HIDDEN_MARK, KNOWN_LENGTH, hidden_mark, tokens

WORDS: Final = frozenset(
    {
        "argv",
        "diff",
        "done",
        "dropped",
        "error",
        "input",
        "kept",
        "hint",
        "hunk",
        "labels",
        "last_words",
        "lines",
        "lost",
        "mismatches",
        "notices",
        "option_notes",
        "options",
        "output",
        "prompt",
        "proof",
        "raw",
        "reason",
        "remarks",
        "rule",
        "shown",
        "text",
        "title",
        "variables",
        "waiting",
        "what",
        "why",
    }
)
"""Fields of events that hold text; the others hold ids, times and kinds, which identify events."""
LINE_LENGTH: Final = 16
"""A line of a multi-line secret with at least this many characters is a secret too."""
TOKEN_LENGTH: Final = 8192
"""The most characters of a token that is still being written."""

BEGUN: Final = "⟨hidden"
"""The beginning of a mark, also of a broken one."""

_TOKEN_BEGINS: Final = re.compile(
    r"\b(?:sk-|gh[opsur]_|github_pat_|glpat-|AKIA|ASIA|AIza|xox|npm_|pypi-|hf_|eyJ)|-----BEGIN"
)
REVEALING: Final = 4
KEY_SIGN: Final = "-----BEGIN"
SIGN_LENGTH: Final = 16
_SIGNS: Final = (
    "sk-",
    *(f"gh{kind}_" for kind in "opsur"),
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "AIza",
    "xox",
    "npm_",
    "pypi-",
    "hf_",
    "eyJ",
    KEY_SIGN,
)
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")

StructT = TypeVar("StructT", bound=msgspec.Struct)
ValueT = TypeVar("ValueT")


class Redactor:
    """Redacts *secrets* in events and in lines of text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._marks: dict[str, str] = {}
        """Each form of each secret -> the mark that replaces it; the longest first."""
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Redact *secrets* too from now on. From any thread."""
        known = {value for value in secrets if len(value) >= KNOWN_LENGTH and not _is_path(value)}
        marks = self._marks | {
            form: hidden_mark(len(part)) for value in known for part in _parts(value) for form in _forms(part)
        }
        self._marks = dict(sorted(marks.items(), key=lambda item: -len(item[0])))

    def fact(self, fact: StructT) -> StructT:
        """Return *fact* without secrets; the same object if it contains none.

        An agent cannot forge a redaction mark in a request. A request with a forged mark cannot be edited: an edit
        would send the agent the mark instead.
        """
        if not isinstance(fact, RequestOpened):
            return self._redact_struct(fact, self.line)
        honest = self._redact_struct(fact, _escape_marks)
        if honest is not fact:
            choices = tuple(choice for choice in honest.request.choices if choice is not Decision.EDIT)
            request = msgspec.structs.replace(honest.request, choices=choices)
            honest = msgspec.structs.replace(honest, request=request)
        return self._redact_struct(honest, self.line)

    def line(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        for start, end, mark in self._find_secrets(text):
            pieces += (text[at:start], mark)
            at = end
        return "".join((*pieces, text[at:])) if pieces else text

    def unfinished(self, text: str) -> str:
        """Return *text*, which is still being written, without secrets and without an end that may become one."""
        return self.line(text[: self._settled_length(text)])

    def next_part(self, text: str, start: int, *, is_over: bool = False) -> tuple[str, int]:
        """Return the next part of *text*, which is still being written, redacted as by `unfinished`; and its end.

        Args:
            text: all of it so far.
            start: 0, or the end that the part before returned: no secret begins before it and ends behind it.
            is_over: nothing follows, so only an end that reveals `REVEALING` characters of a secret is held back.
        """
        end = self._settled_length(text, is_over=is_over)
        pieces: list[str] = []
        at = start
        for first, last, mark in self._find_secrets(text[:end]):
            if first >= at:
                pieces += (text[at:first], mark)
            at = max(at, last)
        return "".join((*pieces, text[at:end])), max(at, end, start)

    def _settled_length(self, text: str, *, is_over: bool = False) -> int:
        """Return how much of *text*, which is still being written, has no beginning of a secret at its end."""
        end = _token_begun(text)
        if end == len(text) and not is_over:
            end -= len(sign[0]) if (sign := _sign_begins().search(text, max(0, end - SIGN_LENGTH))) else 0
        least = REVEALING if is_over else 1
        while (held_back := max((_overlap(text[:end], form) for form in self._marks), default=0)) >= least:
            end -= held_back
        return end

    def restored(self, edited: ValueT, before: Any) -> ValueT:
        """Return *edited*, a user's edit of the redacted *before*, with the secrets in place of their marks.

        Both are texts, or JSON values. Redacted parts may be removed, and moved if no two of them look alike.

        Raises:
            ValueError: if a redacted part is ambiguous.
        """
        known = [(mark, text[start:end]) for text in strings(before) for start, end, mark in self._find_secrets(text)]
        marks = [mark for text in strings(edited) for mark in re.findall(HIDDEN_MARK, text)]
        if not known or not any(BEGUN in text for text in strings(edited)):
            return edited
        if any(BEGUN in re.sub(HIDDEN_MARK, "", text) for text in strings(edited)):
            raise ValueError("a redacted part is broken")
        if marks != [mark for mark, _ in known]:
            if not set(marks) <= {mark for mark, _ in known}:
                raise ValueError("a redacted part has been changed")
            if len(dict(known)) < len(set(known)):
                raise ValueError("redacted parts of one length were moved or removed")
            known = [(mark, dict(known)[mark]) for mark in marks]
        secrets = iter([secret for _, secret in known])
        restored: ValueT = _map_strings(edited, lambda text: re.sub(HIDDEN_MARK, lambda mark: next(secrets), text))
        return restored

    def _find_secrets(self, text: str) -> list[tuple[int, int, str]]:
        """Return where secrets are in *text*, each with its mark; in order, none within another."""
        spans = [(start, end, hidden_mark(end - start)) for start, end in tokens(text)]
        for form, mark in self._marks.items():
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form), mark))
                at = text.find(form, at + len(form))
        if len(spans) < 2:
            return spans
        found: list[tuple[int, int, str]] = []
        for start, end, mark in sorted(spans, key=lambda span: (span[0], -span[1])):
            if not found or start >= found[-1][1]:
                found.append((start, end, mark))
            elif end > found[-1][1]:
                found[-1] = (found[-1][0], end, hidden_mark(end - found[-1][0]))
        return found

    def _redact_struct(self, struct: StructT, hide: Callable[[str], str]) -> StructT:
        changed: dict[str, Any] = {}
        for name in struct.__struct_fields__:
            before = getattr(struct, name)
            after = _map_strings(before, hide) if name in WORDS else self._redact_nested(before, hide)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(struct, **changed) if changed else struct

    def _redact_nested(self, value: Any, hide: Callable[[str], str]) -> Any:
        """Return *value*, which is not itself redacted, with the structs in it redacted."""
        if isinstance(value, msgspec.Struct):
            return self._redact_struct(value, hide)
        if isinstance(value, tuple):
            return _same(value, tuple(self._redact_nested(member, hide) for member in value))
        return value


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return *value* with each of its `strings` changed; the same object if none was."""
    if isinstance(value, str):
        return _same(value, change(value))
    if isinstance(value, list | tuple):
        return _same(value, type(value)(_map_strings(member, change) for member in value))
    if isinstance(value, dict):
        return _same(value, {_map_strings(key, change): _map_strings(member, change) for key, member in value.items()})
    return value


def _parts(value: str) -> list[str]:
    """Return *value* without surrounding whitespace, and each of its lines that is long enough."""
    plain = value.strip()
    lines = [line.strip() for line in plain.splitlines()]
    return [plain, *(line for line in lines if len(lines) > 1 and len(line) >= LINE_LENGTH)]


def _forms(plain: str) -> set[str]:
    """Return the forms of *plain* in a text: itself; quoted as in JSON or Python, also one in the other; in a URL."""
    forms = {plain}
    for _ in range(2):
        forms |= {written for form in forms for written in _list_quoted(form)}
    forms.add("".join(map(_in_address, plain.encode("utf-8", "surrogateescape"))))
    return {form for form in forms if len(form) >= KNOWN_LENGTH}


def _list_quoted(text: str) -> set[str]:
    import json  # only here: without secrets it is never loaded

    return {repr(text)[1:-1], *(json.dumps(text, ensure_ascii=plain_ascii)[1:-1] for plain_ascii in (True, False))}


def _in_address(byte: int) -> str:
    character = chr(byte)
    return character if character.isascii() and (character.isalnum() or character in "-._~") else f"%{byte:02X}"


def _escape_marks(text: str) -> str:
    """Return an agent's *text* with everything that looks like a redaction mark changed."""
    return re.sub(HIDDEN_MARK, lambda mark: f"⟨U+27E8⟩{mark[0][1:]}", text) if HIDDEN in text else text


@cache
def _sign_begins() -> re.Pattern[str]:
    """Return the pattern of the possible beginning of a token; compiling it takes half as long as Python to start."""
    beginnings = sorted({re.escape(sign[:n]) for sign in _SIGNS for n in range(1, len(sign))})
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(beginnings)})\Z")


def _token_begun(text: str) -> int:
    """Return where in *text* an unfinished token begins that reaches to the end; the end if there is none."""
    tail = max(0, len(text) - TOKEN_LENGTH)
    if (key := _KEY_BEGINS.search(text, tail)) is not None and "-----END" not in text[key.end() :]:
        return key.start()
    parts = text[tail:].split()
    if not parts or text[-1].isspace():
        return len(text)
    start = len(text) - len(parts[-1])
    if parts[-2:-1] and parts[-2].endswith("earer"):
        return start
    begins = _TOKEN_BEGINS.search(text, start)
    return begins.start() if begins is not None else len(text)


def _overlap(text: str, form: str) -> int:
    """Return how many characters at the end of *text* may be the beginning of *form*, without being all of it."""
    longest = min(len(form) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(form[:length])), 0)


def _is_path(value: str) -> bool:
    return value.startswith("/") and "\0" not in value and os.path.exists(value)  # noqa: PTH110 - any text may stand there


def _same(before: Any, after: Any) -> Any:
    return before if before == after else after
