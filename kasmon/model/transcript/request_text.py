"""A request as rows to read before deciding: all of it, with nothing hidden but secrets. Pure.

A command keeps its own lines, each broken at `&&`, `|` and `;`; an edit is a diff; everything else is shown as sent.
Invisible characters are shown. Two commands that look equal differ at most in a blank before an operator.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model.permission import Request, RequestKind
from kasmon.model.request_groups import strings, texts
from kasmon.model.transcript import diff
from kasmon.model.transcript.markdown.renderer import draw_markdown
from kasmon.model.transcript.text import BLANK, Margin, Span, TextLine, Token, wrap
from kasmon.sanitize import has_hidden, redact

Kind: TypeAlias = Literal["blank", "sign", "break", "word"]
Part: TypeAlias = tuple[int, str]
"""Depth and text: a line of the command begins at depth 0; what follows one of its operators is at depth 1."""

BREAK: Final[Part] = (-1, "\n")
"""A line break between two lines of the command."""
_BLANK: Final = re.compile(r"[ \t]+")
_SIGN: Final = re.compile(r"&&|\|\||\|&|;;|[|;&]")
_COMMENT: Final = re.compile(r"#[^\n]*")
_HERE_DOCUMENT: Final = re.compile(r"(?<!<)<<-?[ \t]*['\"\\]?[A-Za-z_]")
"""Neither a here-string (`<<<`) nor a shift of numbers."""


def split_command(text: str) -> list[Part]:
    """Split *text* at its own line breaks, and before `&&`, `||`, `|` and `;` only.

    Comments, quoted and nested text are not broken, and a here-document keeps its lines. The only thing left out is one
    blank before an operator at which a line is broken.
    """
    if _HERE_DOCUMENT.search(text):
        return [part for line in text.split("\n") for part in ((0, line), BREAK)][:-1]
    parts: list[Part] = []
    depth, line = 0, ""
    for kind, raw in _pieces(text):
        if kind == "break":
            parts += [(depth, line), BREAK] if line else [BREAK]
            depth, line = 0, ""
        elif kind == "sign" and raw != "&" and line.strip():
            before = line.rstrip(" \t")
            parts.append((depth, before))
            gap = line[len(before) :]  # a line break replaces one of its blanks
            depth, line = 1, gap.removeprefix(" ") + raw
        else:
            line += raw
    return [*parts, (depth, line)] if line else parts


def _pieces(text: str) -> Iterator[tuple[Kind, str]]:
    """Yield *text* completely as blanks, operators, line breaks and words."""
    at = 0
    while at < len(text):
        start = at
        if blank := _BLANK.match(text, at):
            at = blank.end()
            yield "blank", blank[0]
        elif text[at] == "\n":
            at += 1
            yield "break", "\n"
        elif comment := _COMMENT.match(text, at):
            at = comment.end()
            yield "word", comment[0]
        elif _is_token_end(text, at) and (sign := _SIGN.match(text, at)):
            at = sign.end()
            yield "sign", sign[0]
        else:
            while at < len(text) and not _is_token_end(text, at):
                at = _token_end(text, at)
            yield "word", text[start:at]


def _is_token_end(text: str, at: int) -> bool:
    return text[at] in " \t\n" or (_SIGN.match(text, at) is not None and not _redirects(text, at))


def _redirects(text: str, at: int) -> bool:
    """Whether the `&` at *at* belongs to a redirection: `2>&1`, `&>`."""
    return text[at] == "&" and (text[at - 1 : at] in (">", "<") or text[at + 1 : at + 2] == ">")


def _token_end(text: str, at: int) -> int:
    """The end of the quoted, escaped or nested piece, or the one character, that begins at *at*."""
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    if character in "'\"`":
        return _quote_end(text, at)
    if character in "$<>" and text[at + 1 : at + 2] == "(":
        return _nest_end(text, at + 1)
    return at + 1


def _quote_end(text: str, at: int) -> int:
    quote, at = text[at], at + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return min(at + 1, len(text))


def _nest_end(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if text[at] in "'\"":
            at = _quote_end(text, at)
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            break
    return at


COMMAND_KEYS: Final = ("command", "cmd", "argv")
"""Keys of a tool's input that hold the command to run."""
EMPTY: Final = "⟨empty⟩"
_MARK: Final = re.compile(r"⟨[^⟩]*⟩|[␤␍␉␠]")
_BEGINS: Final[tuple[Margin, Margin]] = ((("  ", Token.FAINT),), (("    ", Token.FAINT),))
"""The margin of a command's line, and of an argument or what follows an operator in it."""
_CONTINUATIONS: Final[tuple[Margin, Margin]] = ((("↳ ", Token.FAINT),), (("  ↳ ", Token.FAINT),))
"""The margin of their continuation rows."""
_FIRST_WORD: Final = re.compile(r"\s*(?:&&|\|[|&]?|;{1,2})?\s*\S+")
_UNDER: Final[Margin] = (("  ", Token.FAINT),)


class RequestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a card, or the page of one request, shows of it."""

    request: Request
    secret_values: tuple[str, ...] = ()
    hidden: bool = False
    """Whether it contains characters that the user could not see."""
    secrets: int = 0
    """How many secrets are not shown."""

    @property
    def letters(self) -> str:
        """The letters that the user types to allow it where there are hidden characters."""
        name = self.request.tool.casefold()
        return "".join(each for each in name if each.isascii() and each.isalnum())[:3] or "yes"

    def title(self) -> str:
        return redact(self.request.title, self.secret_values)[0].replace("\n", "␤")

    def tool(self) -> str:
        return redact(self.request.tool, self.secret_values)[0].replace("\n", "␤")

    def rule(self) -> str:
        return redact(self.request.rule, self.secret_values)[0].replace("\n", "␤")

    def rows(self, width: int, *, with_options: bool = False) -> list[TextLine]:
        """Return the whole request in rows of at most *width* cells.

        Args:
            width: in cells.
            with_options: include the options and their notes, where there is no space to show them in full below.
        """
        rows = list(_rows(self.request, self.secret_values, width))
        return [*rows, *_options(self.request, self.secret_values, width)] if with_options else rows


def sheet(request: Request, secret_values: Sequence[str] = ()) -> RequestDocument:
    """Return *request* as its card shows it; *secret_values* are secret values of its session."""
    shown = ("\n".join(strings(request.input)), request.shown)
    return RequestDocument(
        request=request,
        secret_values=tuple(secret_values),
        hidden=any(map(has_hidden, texts(request))),
        secrets=max(redact(text, secret_values)[1] for text in shown),
    )


def command_of(request: Request) -> tuple[str, str | list[str]] | None:
    """Return the key and the value of the command that *request* would run; None if there is none."""
    for key in COMMAND_KEYS:
        value = request.input.get(key)
        if isinstance(value, str):
            return key, value
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return key, list(value)
    return None


def _rows(request: Request, secret_values: Sequence[str], width: int) -> Iterator[TextLine]:
    command = command_of(request)
    is_shown = False
    if command is not None:
        _, value = command
        parts = _argv(value) if isinstance(value, list) else split_command(value)
        yield from _command(parts, secret_values, width)
        is_shown = isinstance(value, str) and (request.shown.strip().removeprefix("$ ") == value.strip())
    if request.shown and not is_shown and not (command and request.shown == request.title):
        if command is not None:
            yield from (BLANK, *wrap([("the agent's description", Token.FAINT)], width))
        if request.is_diff:
            yield from _diff(redact(request.shown.removesuffix("\n"), secret_values)[0].split("\n"), width)
        elif request.kind is RequestKind.PLAN:
            yield from _markdown(request.shown, secret_values, width)
        else:
            token = Token.CODE if request.kind is RequestKind.PERMISSION else Token.TEXT
            yield from _text(request.shown, secret_values, width, token)
    yield from _other_inputs(request, secret_values, width, bool(command or request.shown))
    if request.why:
        yield from (BLANK, *wrap([("reason", Token.FAINT)], width))
        yield from _text(request.why, secret_values, width, Token.TEXT)


def _options(request: Request, secret_values: Sequence[str], width: int) -> Iterator[TextLine]:
    for number, option in enumerate(request.options):
        first: Margin = ((f"{number + 1} ", Token.NUMBER),)
        text = redact(option, secret_values)[0].replace("\n", "␤")
        yield BLANK
        yield from wrap(marked(text, Token.TEXT), width, first, (("  ", Token.NUMBER),))
        yield from wrap(marked(note_of(request, number, secret_values), Token.FAINT), width, _UNDER, _UNDER)


def note_of(request: Request, number: int, secret_values: Sequence[str]) -> str:
    """Return the agent's note on option *number*, from 0, on one line; empty if it has none."""
    notes = request.option_notes
    return redact(notes[number], secret_values)[0].replace("\n", "␤") if number < len(notes) else ""


def _markdown(text: str, secret_values: Sequence[str], width: int) -> Iterator[TextLine]:
    """Rendered Markdown with all of its words, and the marks of invisible characters highlighted."""
    for line in draw_markdown(redact(text, secret_values)[0], width, ()):
        spans = [piece for span_text, token in line.spans for piece in marked(span_text, token)]
        yield msgspec.structs.replace(line, spans=tuple(spans))


def _text(text: str, secret_values: Sequence[str], width: int, token: Token) -> Iterator[TextLine]:
    for line in redact(text, secret_values)[0].split("\n"):
        yield from wrap(marked(line, token), width)


def diff_rows(text: str, width: int) -> list[TextLine]:
    """Return a unified diff in rows of at most *width* cells, hidden characters shown."""
    return _diff(redact(text.removesuffix("\n"))[0].split("\n"), width)


def _diff(lines: Sequence[str], width: int) -> list[TextLine]:
    number_width = diff.digits(lines)
    numbered = diff.number_lines(lines)
    return [row for number, span in numbered for row in diff.row(number, marked(*span), number_width, width)]


def _command(parts: Sequence[Part], secret_values: Sequence[str], width: int) -> list[TextLine]:
    """One line for each part of a command, with the executed word in bold."""
    rows: list[TextLine] = []
    for depth, part in parts:
        if (depth, part) == BREAK:
            before = rows.pop().spans if rows else ()
            rows.append(TextLine((*before, ("␤", Token.WARNING))))
            continue
        lines = (redact(part, secret_values)[0] or EMPTY).split("\n")
        for number, line in enumerate(lines):
            end = "␤" if number < len(lines) - 1 else ""
            first = _CONTINUATIONS[depth] if number else _BEGINS[depth]
            spans = marked(line + end, Token.CODE) if number else _strong_first(line + end)
            rows += wrap(spans, width, first, _CONTINUATIONS[depth], words=False)
    return rows


def _strong_first(line: str) -> list[Span]:
    """*line* with its operator and its first word in bold; marks keep their highlighting."""
    match = _FIRST_WORD.match(line)
    at, spans = match.end() if match else 0, list[Span]()
    for text, token in marked(line, Token.CODE):
        strong = text[: max(0, at)] if token is Token.CODE else ""
        spans += [(strong, Token.STRONG)] if strong else []
        spans += [(text[len(strong) :], token)] if len(strong) < len(text) or not text else []
        at -= len(text)
    return spans


def _argv(values: Sequence[str]) -> list[Part]:
    return [(min(number, 1), value) for number, value in enumerate(values)]


def _other_inputs(request: Request, secret_values: Sequence[str], width: int, after: bool) -> Iterator[TextLine]:
    left = {key: value for key, value in request.input.items() if key not in COMMAND_KEYS}
    if request.kind is RequestKind.QUESTION and request.shown:
        return  # its input repeats the question in the format of the agent's own protocol
    if request.kind is RequestKind.PLAN:
        left = {key: value for key, value in left.items() if value != request.shown}
    if request.is_diff:
        seen = {line[start:] for line in request.shown.split("\n") for start in (1, 6)}
        left = {key: value for key, value in left.items() if not _is_seen(value, seen)}
    if left and after:
        yield BLANK
    for key, value in left.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
        name = redact(str(key), secret_values)[0].replace("\n", "␤")
        lines = redact(text, secret_values)[0].split("\n")
        yield from wrap([(f"{name}  ", Token.FAINT), *marked(lines[0], Token.CODE)], width)
        for line in lines[1:]:
            yield from wrap(marked(line, Token.CODE), width, _UNDER, _UNDER, words=False)


def _is_seen(value: Any, seen: set[str]) -> bool:
    """Whether a diff whose lines are *seen* shows all of *value*."""
    return isinstance(value, str) and all(line in seen for line in value.split("\n"))


def marked(text: str, token: Token) -> list[Span]:
    """Return *text* with the marks of invisible characters highlighted."""
    spans: list[Span] = []
    at = 0
    for match in _MARK.finditer(text):
        if match.start() > at:
            spans.append((text[at : match.start()], token))
        spans.append((match[0], Token.WARNING))
        at = match.end()
    return [*spans, (text[at:], token)] if at < len(text) or not spans else spans
