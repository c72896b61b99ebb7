"""Code that ran in a sandbox's interpreter, as rows: the whole code, highlighted, then its output and its end."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.model.events import Event, ToolFinished, ToolStarted
from kasmon.model.formatting import duration
from kasmon.model.sandbox.policy import INTERPRETERS
from kasmon.model.transcript import syntax as code
from kasmon.model.transcript import tool_blocks
from kasmon.model.transcript.style import FOLD_LINES, INDENT, TranscriptStyle, hidden
from kasmon.model.transcript.text import BLANK, Margin, Span, TextLine, Token, wrap
from kasmon.sanitize import clean_block, clean_line

if TYPE_CHECKING:
    from kasmon.model.transcript.blocks import Block

LANGUAGES: Final = {"python": "python", "bash": "bash", "node": "javascript"}
BAR: Final[Margin] = (("  ", Token.TEXT),)


class _Input(msgspec.Struct):
    code: str


def code_of(event: Event) -> str:
    """Return the code that *event* began to run; empty if it began none, or does not contain all of it."""
    if not isinstance(event, ToolStarted) or event.tool not in INTERPRETERS:
        return ""
    try:
        return msgspec.json.decode(event.input, type=_Input).code
    except msgspec.MsgspecError:
        return ""


def codes(blocks: "Iterable[Block]") -> list[str]:
    """Return the code that was run, each text once, the latest one last."""
    last: dict[str, None] = {}
    for block in blocks:
        if text := code_of(block.event):
            last.pop(text, None)
            last[text] = None
    return [*last]


def call(event: ToolStarted, then: Sequence[Event], style: TranscriptStyle) -> list[TextLine]:
    """Return the rows of the run that *event* began, and of its result."""
    finished, end_spans = tool_blocks.ending(event, then), list[Span]()
    sign: Span = (" …", Token.FAINT)
    if finished is not None:
        sign = (" ✓", Token.OK) if finished.ok else (" ✗", Token.FAILED)
        end_spans = [(f" {' · '.join(_describe_end(event, finished))}", Token.FAINT if finished.ok else Token.FAILED)]
    head = [(clean_line(event.tool), Token.TOOL), sign, *end_spans]
    rows = [BLANK, *wrap(head, style.width, (("● ", sign[1]),), INDENT)]
    lines = _lines(event)
    most = FOLD_LINES if style.fold and len(lines) > FOLD_LINES + 1 else len(lines)
    language = LANGUAGES.get(event.tool, "") if style.colours else ""
    for spans in code.highlight(lines, language)[:most]:
        rows += [TextLine(row.spans, code=1) for row in wrap(spans, style.width, BAR, BAR, words=False)]
    rows += hidden(len(lines) - most, "more lines", style)
    return rows + (tool_blocks.result(finished, style) if finished is not None else [])


def printed(text: str, then: Sequence[Event], style: TranscriptStyle) -> list[TextLine]:
    """Return the output of a run so far; nothing once an event has it."""
    if not text or any(isinstance(event, ToolFinished) for event in then):
        return []
    running = ToolFinished(at=0.0, call="", ok=True, output=text)
    return tool_blocks.result(running, msgspec.structs.replace(style, fold=False))


def folds(event: Event) -> bool:
    """Whether folding hides a part of the code."""
    return bool(code_of(event)) and isinstance(event, ToolStarted) and len(_lines(event)) > FOLD_LINES + 1


def _lines(event: ToolStarted) -> list[str]:
    return clean_block(code_of(event)).rstrip("\n").split("\n")


def _describe_end(event: ToolStarted, finished: ToolFinished) -> list[str]:
    code_words = [] if finished.exit_code is None or not finished.exit_code else [f"exit {finished.exit_code}"]
    took = finished.at - event.at
    return [*code_words, duration(took) if took >= 1 else f"{max(took, 0) * 1000:.0f} ms"]
