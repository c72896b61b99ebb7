"""A request as rows to read before deciding: all of it, with nothing hidden but secrets. Pure.

A command stands with one argument a line, an edit as a diff, everything else as it was sent. Characters that cannot be
seen are shown; two different commands never look equal but for the blanks between arguments.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from kasmon.clean import has_hidden, redact
from kasmon.model import diff, markdown
from kasmon.model.alike import strings, texts
from kasmon.model.permission import AskKind, Request
from kasmon.model.text import BLANK, Line, Margin, Span, Token, fitted
from kasmon.tui.shell import BREAK, Part, split_command

COMMAND_KEYS: Final = ("command", "cmd", "argv")
"""Keys of a tool's input that hold what would be run."""
EMPTY: Final = "⟨empty⟩"
_MARK: Final = re.compile(r"⟨[^⟩]*⟩|[␤␍␉␠]")
_BEGINS: Final[tuple[Margin, Margin]] = ((("  ", Token.FAINT),), (("    ", Token.FAINT),))
"""What stands left of a command, and of an argument."""
_GOES_ON: Final[tuple[Margin, Margin]] = ((("↳ ", Token.FAINT),), (("  ↳ ", Token.FAINT),))
"""What stands left of their further rows."""
_UNDER: Final[Margin] = (("  ", Token.FAINT),)


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What a card shows of a request."""

    request: Request
    known: tuple[str, ...] = ()
    """Secret values that are not shown."""
    hidden: bool = False
    """It holds characters that a person could not see."""
    secrets: int = 0
    """How many secrets are not shown."""

    def title(self) -> str:
        return redact(self.request.title, self.known)[0].replace("\n", "␤")

    def tool(self) -> str:
        return redact(self.request.tool, self.known)[0].replace("\n", "␤")

    def rule(self) -> str:
        return redact(self.request.rule, self.known)[0].replace("\n", "␤")

    def rows(self, width: int, *, with_options: bool = False) -> list[Line]:
        """The whole request in rows of at most *width* cells.

        Args:
            width: in cells.
            with_options: the answers to choose and their notes too, where they cannot stand below it whole.
        """
        rows = list(_rows(self.request, self.known, width))
        return [*rows, *_options(self.request, self.known, width)] if with_options else rows


def sheet(request: Request, known: Sequence[str] = ()) -> Sheet:
    """*request* as its card shows it; *known* are secret values of its session."""
    return Sheet(
        request=request,
        known=tuple(known),
        hidden=any(map(has_hidden, texts(request))),
        secrets=max(redact("\n".join(strings(request.input)), known)[1], redact(request.shown, known)[1]),
    )


def command_of(request: Request) -> tuple[str, str | list[str]] | None:
    """The key and the value of what *request* would run; None if it is no command."""
    for key in COMMAND_KEYS:
        value = request.input.get(key)
        if isinstance(value, str):
            return key, value
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return key, list(value)
    return None


def _rows(request: Request, known: Sequence[str], width: int) -> Iterator[Line]:
    command = command_of(request)
    told = False
    if command is not None:
        _, value = command
        parts = _argv(value) if isinstance(value, list) else split_command(value)
        yield from _command(parts, known, width)
        told = isinstance(value, str) and _same(request.shown, value)
    if request.shown and not told and not (command and request.shown == request.title):
        if command is not None:
            yield from (BLANK, *fitted([("as the agent puts it", Token.FAINT)], width))
        if request.is_diff:
            yield from _diff(redact(request.shown.removesuffix("\n"), known)[0].split("\n"), width)
        elif request.kind is AskKind.PLAN:
            yield from _markdown(request.shown, known, width)
        else:
            token = Token.CODE if request.kind is AskKind.PERMISSION else Token.TEXT
            yield from _text(request.shown, known, width, token)
    yield from _rest(request, known, width, bool(command or request.shown))
    if request.why:
        yield from (BLANK, *fitted([("its reason", Token.FAINT)], width))
        yield from _text(request.why, known, width, Token.TEXT)


def _options(request: Request, known: Sequence[str], width: int) -> Iterator[Line]:
    """The answers to choose, each with its note, all of them."""
    for number, option in enumerate(request.options):
        first: Margin = ((f"{number + 1} ", Token.NUMBER),)
        text = redact(option, known)[0].replace("\n", "␤")
        yield BLANK
        yield from fitted(marked(text, Token.TEXT), width, first, (("  ", Token.NUMBER),))
        yield from fitted(marked(note_of(request, number, known), Token.FAINT), width, _UNDER, _UNDER)


def note_of(request: Request, number: int, known: Sequence[str]) -> str:
    """What option *number*, from 0, means by the agent's word, on one line; empty where it did not say."""
    notes = request.option_notes
    return redact(notes[number], known)[0].replace("\n", "␤") if number < len(notes) else ""


def _markdown(text: str, known: Sequence[str], width: int) -> Iterator[Line]:
    """Markdown as it reads, the marks of what cannot be seen made loud; all of its words are there."""
    for line in markdown.drawn(redact(text, known)[0], width, ()):
        spans = [piece for said, token in line.spans for piece in marked(said, token)]
        yield msgspec.structs.replace(line, spans=tuple(spans))


def _same(shown: str, command: str) -> bool:
    return shown.strip().removeprefix("$ ") == command.strip()


def _text(text: str, known: Sequence[str], width: int, token: Token) -> Iterator[Line]:
    for line in redact(text, known)[0].split("\n"):
        yield from fitted(marked(line, token), width)


def diff_rows(text: str, width: int) -> list[Line]:
    """A unified diff in rows of at most *width* cells, hidden characters shown."""
    return _diff(redact(text.removesuffix("\n"))[0].split("\n"), width)


def _diff(lines: Sequence[str], width: int) -> list[Line]:
    rows: list[Line] = []
    digits = max((len(number) for number, _ in diff.numbered(lines)), default=1)
    for number, (text, token) in diff.numbered(lines):
        first: Margin = ((f"{number:>{digits}} ", Token.NUMBER),)
        rest: Margin = ((" " * (digits + 1), Token.NUMBER),)
        rows += fitted(marked(text, token), width, first, rest, words=False)
    return rows


def _command(parts: Sequence[Part], known: Sequence[str], width: int) -> list[Line]:
    """One line for each part; depth 0 begins a command, 1 is an argument."""
    rows: list[Line] = []
    for depth, part in parts:
        if (depth, part) == BREAK:
            before = rows.pop().spans if rows else ()
            rows.append(Line((*before, ("␤", Token.WARNING))))
            continue
        lines = (redact(part, known)[0] or EMPTY).split("\n")
        for number, line in enumerate(lines):
            token = Token.STRONG if depth == 0 and number == 0 else Token.CODE
            end = "␤" if number < len(lines) - 1 else ""
            first = _GOES_ON[depth] if number else _BEGINS[depth]
            rows += fitted(marked(line + end, token), width, first, _GOES_ON[depth], words=False)
    return rows


def _argv(values: Sequence[str]) -> list[Part]:
    return [(min(number, 1), value) for number, value in enumerate(values)]


def _rest(request: Request, known: Sequence[str], width: int, after: bool) -> Iterator[Line]:
    """What else the tool would get."""
    left = {key: value for key, value in request.input.items() if key not in COMMAND_KEYS}
    if request.kind is AskKind.QUESTION and request.shown:
        return  # its input is the question again, as the agent's own protocol has it
    if request.kind is AskKind.PLAN:
        left = {key: value for key, value in left.items() if value != request.shown}
    if request.is_diff:
        seen = {line[start:] for line in request.shown.split("\n") for start in (1, 6)}
        left = {key: value for key, value in left.items() if not _is_seen(value, seen)}
    if left and after:
        yield BLANK
    for key, value in left.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
        name = redact(str(key), known)[0].replace("\n", "␤")
        lines = redact(text, known)[0].split("\n")
        yield from fitted([(f"{name}  ", Token.FAINT), *marked(lines[0], Token.CODE)], width)
        for line in lines[1:]:
            yield from fitted(marked(line, Token.CODE), width, _UNDER, _UNDER, words=False)


def _is_seen(value: Any, seen: set[str]) -> bool:
    """Whether a diff whose lines are *seen* shows all of *value*."""
    return isinstance(value, str) and all(line in seen for line in value.split("\n"))


def marked(text: str, token: Token) -> list[Span]:
    """*text* with the marks of what cannot be seen made loud."""
    spans: list[Span] = []
    at = 0
    for match in _MARK.finditer(text):
        if match.start() > at:
            spans.append((text[at : match.start()], token))
        spans.append((match[0], Token.WARNING))
        at = match.end()
    return [*spans, (text[at:], token)] if at < len(text) or not spans else spans
