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
from kasmon.model import diff
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

    def rows(self, width: int) -> list[Line]:
        """The whole request in rows of at most *width* cells."""
        return list(_rows(self.request, self.known, width))


def sheet(request: Request, known: Sequence[str] = ()) -> Sheet:
    """*request* as its card shows it; *known* are secret values of its session."""
    texts = [*strings(request.input), request.tool, request.title, request.shown, request.rule, *request.options]
    return Sheet(
        request=request,
        known=tuple(known),
        hidden=any(has_hidden(text) for text in texts),
        secrets=max(redact("\n".join(strings(request.input)), known)[1], redact(request.shown, known)[1]),
    )


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield str(key)
            yield from strings(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings(member)


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
        else:
            token = Token.CODE if request.kind is AskKind.PERMISSION else Token.TEXT
            yield from _text(request.shown, known, width, token)
    yield from _rest(request, known, width, bool(command or request.shown))


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


class Unfinished(Exception):  # noqa: N818 - it is no error: the person goes on writing
    """The edited text cannot be what the tool gets; the message says why."""


def editable(request: Request, known: Sequence[str] = ()) -> str:
    """What a person edits of *request*: its command, else its whole input as JSON; secrets left out."""
    command = command_of(request)
    if command is not None and isinstance(command[1], str):
        return without_secrets(command[1], known)
    return without_secrets(_json(request), _in_json(known))


def edited_input(request: Request, text: str, known: Sequence[str] = ()) -> dict[str, Any]:
    """The tool's input as edited; secrets that were left out are put back.

    Raises:
        Unfinished: if it is no JSON object, or a hidden part was broken.
    """
    command = command_of(request)
    if command is not None and isinstance(command[1], str):
        return {**request.input, command[0]: restored(text, command[1], known)}
    try:
        value = json.loads(restored(text, _json(request), _in_json(known)))
    except json.JSONDecodeError as error:
        raise Unfinished(f"this is no JSON: {error.msg}, line {error.lineno}") from error
    if not isinstance(value, dict):
        raise Unfinished("the input must be a JSON object, in braces")
    return value


def can_edit(request: Request) -> bool:
    """Whether a person can edit it as text: nothing in it would be lost on the way."""
    command = command_of(request)
    text = command[1] if command is not None and isinstance(command[1], str) else _json(request)
    return not has_hidden(text) and bool(request.input)


def _json(request: Request) -> str:
    return json.dumps(request.input, indent=2, ensure_ascii=False)


_HOLE: Final = re.compile(r"⟨hidden (\d+): \d+ characters⟩")
_SHOWN_PIECE: Final = re.compile(r"⟨hidden: (\d+) characters⟩|⟨U\+[0-9A-F]+⟩|.", re.DOTALL)


def without_secrets(text: str, known: Sequence[str]) -> str:
    """*text* as it is, but for its secrets: each is a numbered hole, so that `restored` can put it back."""
    shown: list[str] = []
    number = 0
    for piece, secret in _pieces(text, known):
        number += secret
        shown.append(f"⟨hidden {number}: {len(piece)} characters⟩" if secret else piece)
    return "".join(shown)


def restored(edited: str, raw: str, known: Sequence[str]) -> str:
    """*edited* with the secrets of *raw* back in their places; those whose holes were taken out are gone.

    Raises:
        Unfinished: if a hole is not as it was.
    """
    secrets = [piece for piece, secret in _pieces(raw, known) if secret]
    holes = {number: f"⟨hidden {number}: {len(secret)} characters⟩" for number, secret in enumerate(secrets, 1)}

    def back(match: re.Match[str]) -> str:
        if holes.get(int(match[1])) != match[0]:
            raise Unfinished("a hidden part is not as it was; leave it whole, or take all of it out")
        return secrets[int(match[1]) - 1]

    if "⟨hidden" in _HOLE.sub("", edited) and secrets:
        raise Unfinished("a hidden part is broken; leave it whole, or take all of it out")
    return _HOLE.sub(back, edited) if secrets else edited


def _pieces(text: str, known: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """*text* cut into what is shown and what is secret; `redact` shows each other character as one mark or itself."""
    at = start = 0
    for match in _SHOWN_PIECE.finditer(redact(text, known)[0]):
        if match[1] is None:
            at += 1
        else:
            size = int(match[1])
            yield text[start:at], False
            yield text[at : at + size], True
            start = at = at + size
    yield text[start:], False


def _in_json(known: Sequence[str]) -> tuple[str, ...]:
    """Secret values, also as JSON writes them."""
    return (*known, *(json.dumps(value, ensure_ascii=False)[1:-1] for value in known))
