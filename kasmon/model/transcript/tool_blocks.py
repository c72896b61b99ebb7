"""A tool call as rows: the call, its outcome, and its output in its own colours; long outputs are folded.

Bold, faint and the six hues are kept and mapped to the theme; backgrounds, blinking, concealing and the rest are not.
A colour sequence cannot inject anything: the text between two of them is cleaned like any other.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from kasmon.model.events import Event, SubtaskChanged, ToolFinished, ToolStarted
from kasmon.model.formatting import compact, duration
from kasmon.model.transcript import diff
from kasmon.model.transcript.style import (
    BELOW,
    FOLD_CHARACTERS,
    FOLD_LINES,
    INDENT,
    UNDER,
    TranscriptStyle,
    fold_row,
    hidden,
)
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, by_line, cells, wrap
from kasmon.sanitize import Clean, clean_block, clean_line
from kasmon.terminal_text.styles import PLAIN, STYLE_CHANGE, TextStyle, colour_numbers

GREY: Final = 48
"""A colour whose channels (0 to 255) differ by less has no hue."""

_HUES: Final = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")
"""By the digit of `30` to `37`, whose bits stand for red, green and blue."""
_CUBE: Final = (0, 95, 135, 175, 215, 255)


def ansi_lines(text: str, token: Token) -> list[list[Span]]:
    """Return the lines of a foreign *text*, cleaned; text without a colour of its own is *token*."""
    if "\x1b" not in text:
        return [[(line, token)] for line in clean_block(text).removesuffix("\n").split("\n")]
    rows = list(by_line(_pieces(text, token)))
    if len(rows) > 1 and not any(piece for piece, _ in rows[-1]):
        rows.pop()
    return [[span for span in row if span[0]] or [("", token)] for row in rows]


def _pieces(text: str, token: Token) -> Iterator[Span]:
    style = PLAIN
    for at, piece in enumerate(STYLE_CHANGE.split(text)):
        if at % 2:
            style = style.after(piece)
        else:
            yield clean_block(piece), _token(style, token)


@lru_cache(maxsize=4096)
def _token(style: TextStyle, token: Token) -> Token:
    colour = colour_numbers(style.foreground)
    if hue := _hue_of(colour):
        return Token(f"loud-{hue}" if "1" in style.attributes else hue)
    if "1" in style.attributes:
        return Token.LOUD
    return Token.FAINT if "2" in style.attributes or colour == (90,) else token


def _hue_of(colour: tuple[int, ...]) -> str:
    match colour:
        case (2, *channels):
            return _hue([min(channel, 255) for channel in (*channels, 0, 0, 0)[:3]])
        case (5, number) if number < 16:
            return _HUES[number % 8]
        case (5, number) if number < 232:
            cell = number - 16
            return _hue([_CUBE[cell // 36], _CUBE[cell // 6 % 6], _CUBE[cell % 6]])
        case (number,) if number >= 30:
            return _HUES[number % 10]
    return ""


def _hue(channels: list[int]) -> str:
    """Return the nearest of the six hues to the red, green and blue *channels*."""
    least, most = min(channels), max(channels)
    if most - least < GREY:
        return ""
    return _HUES[sum(1 << bit for bit, channel in enumerate(channels) if channel > (least + most) / 2)]


FOLD_DIFF_LINES: Final = 60
"""How many lines of a folded change are drawn."""
ONE_LINE: Final = 60
"""A longer title of a folded call, in characters, is cut at the end of its row."""
LEAST_TITLE: Final = 20
"""With less space for its title than this, in cells, a call is drawn on several rows."""


class ToolKind(StrEnum):
    """What a tool does, by which its result is drawn."""

    SHELL = "shell"
    READ = "read"
    SEARCH = "search"
    FETCH = "fetch"
    EDIT = "edit"
    OTHER = "other"


KINDS: Final = {
    **dict.fromkeys(("bash", "shell", "execute", "run_shell_command", "exec_command"), ToolKind.SHELL),
    **dict.fromkeys(("read", "notebookread", "view_image", "read_file", "read_many_files"), ToolKind.READ),
    **dict.fromkeys(("grep", "glob", "ls", "list", "search", "websearch", "web_search"), ToolKind.SEARCH),
    **dict.fromkeys(("grep_search", "search_file_content", "list_directory", "google_web_search"), ToolKind.SEARCH),
    **dict.fromkeys(("webfetch", "web_fetch", "fetch"), ToolKind.FETCH),
    **dict.fromkeys(("edit", "write", "multiedit", "notebookedit", "apply_patch", "replace"), ToolKind.EDIT),
    **dict.fromkeys(("write_file", "delete", "move"), ToolKind.EDIT),
}
"""The names of tools of claude, codex, gemini and opencode, and the kinds of ACP, in small letters."""
FOLDED_LINES: Final = {ToolKind.READ: 0, ToolKind.SEARCH: 6, ToolKind.FETCH: 6}
"""How many lines of a folded output are drawn, if not `FOLD_LINES`."""


def tool_kind(event: Event, then: Sequence[Event]) -> ToolKind:
    """Return what the tool of this call does, by its name."""
    began = next((each for each in (event, *then) if isinstance(each, ToolStarted)), None)
    return KINDS.get(began.tool.lower(), ToolKind.OTHER) if began is not None else ToolKind.OTHER


def call(event: ToolStarted | ToolFinished, then: Sequence[Event], style: TranscriptStyle) -> list[TextLine]:
    """Return the call that *event* began (or ended, if its beginning is unknown); *then* holds its later events."""
    finished, kind = ending(event, then), tool_kind(event, then)
    began = next((each for each in (event, *then) if isinstance(each, ToolStarted)), None)
    if began is not None:
        name, subject = clean_line(began.tool), title(began)
    else:
        name, subject = clean_line("a tool"), clean_line(event.call)
    sign: Span = (" …", Token.FAINT)
    if finished is not None:
        sign = (" ✓", Token.OK) if finished.ok else (" ✗", Token.FAILED)
    task = next((each for each in reversed(then) if isinstance(each, SubtaskChanged)), None)
    if task is not None and task.state != "done":
        sign = SUBTASK_SIGNS[task.state]
    about = [
        _describe_use(task) if task is not None else "",
        _describe_result(finished, kind) if finished is not None else "",
    ]
    facts: list[Span] = [(f" · {' · '.join(filter(None, about))}", Token.FAINT)] if any(about) else []
    rows = [BLANK, *_head(name, subject, sign, facts, style)]
    if finished is not None:
        rows += result(finished, style, kind)
    if task is not None and task.output:
        rows += result(ToolFinished(at=task.at, call="", ok=task.state == "done", output=task.output), style)
    if style.opened and not (finished is not None and _folds_result(finished, kind)) and len(subject) > ONE_LINE:
        rows += fold_row("▴ collapse", style)
    return rows


def _head(name: str, subject: str, sign: Span, facts: list[Span], style: TranscriptStyle) -> list[TextLine]:
    """Return the call itself; a folded one is on one row."""
    mark, end = ("● ", sign[1]), [sign, *facts]
    if style.fold and len(subject) > ONE_LINE:
        space = style.width - cells(f"● {name} ") - sum(cells(text) for text, _ in end) - 1
        shown = wrap([(subject, Token.SUBJECT)], space, words=False) if space >= LEAST_TITLE else []
        if len(shown) > 1:
            cut = [(name, Token.TOOL), (" ", Token.SUBJECT), *shown[0].spans, ("…", Token.FAINT), *end]
            return [TextLine(row.spans, fold=True) for row in wrap(cut, style.width, (mark,), INDENT)]
    beginning, left_out = _short([(subject, Token.SUBJECT)], style)
    more = [(f"… {left_out} more characters", Token.FAINT)] if left_out else []
    head = [(name, Token.TOOL), *([(" ", Token.SUBJECT), *beginning] if subject else []), *more, *end]
    return wrap(head, style.width, (mark,), INDENT)


def _describe_result(finished: ToolFinished, kind: ToolKind) -> str:
    """Return what a result comes to, by the kind of its tool; empty if its text says it."""
    if finished.diff:
        return diff.count_changes(clean_block(finished.diff).split("\n"))
    if kind is ToolKind.SHELL and finished.exit_code:
        return f"exit code {finished.exit_code}"
    if kind is ToolKind.SEARCH and finished.ok and finished.output:
        count = finished.output.removesuffix("\n").count("\n") + 1
        return f"{count} {'line' if count == 1 else 'lines'}"
    return ""


SUBTASK_SIGNS: Final[dict[str, Span]] = {
    "running": (" …", Token.FAINT),
    "done": (" ✓", Token.OK),
    "failed": (" ✗", Token.FAILED),
    "stopped": (" ✗", Token.FAINT),
}


def subtask(task: SubtaskChanged, style: TranscriptStyle) -> list[TextLine]:
    """Return a sub-agent or a background command whose call is unknown."""
    sign = SUBTASK_SIGNS[task.state]
    used: list[Span] = [(f" · {_describe_use(task)}", Token.FAINT)] if _describe_use(task) else []
    head = [(clean_line(task.job), Token.TOOL), (f" {clean_line(task.title)}", Token.SUBJECT), sign, *used]
    rows = [BLANK, *wrap(head, style.width, (("● ", sign[1]),), INDENT)]
    return [*rows, *(result(ToolFinished(at=task.at, call="", output=task.output), style) if task.output else [])]


def _describe_use(task: SubtaskChanged) -> str:
    """Return the state of a task and what it has used, as far as it is known."""
    parts = (
        "in the background" if task.in_background and task.state == "running" else "",
        task.state if task.state in ("failed", "stopped") else "",
        f"{task.tools} {'tool' if task.tools == 1 else 'tools'}" if task.tools else "",
        f"{compact(task.tokens)} tokens" if task.tokens else "",
        duration(task.duration_s) if task.duration_s >= 1 else "",
    )
    return " · ".join(filter(None, parts))


def title(event: ToolStarted) -> Clean:
    """Return the subject of the call, in one line."""
    return clean_line(event.title) or clean_line(event.input if event.input != "{}" else "")


def ending(event: Event, then: Sequence[Event]) -> ToolFinished | None:
    """Return how the call ended, if it did."""
    return next((each for each in (event, *then) if isinstance(each, ToolFinished)), None)


def folds(event: Event, then: Sequence[Event]) -> bool:
    """Whether folding hides a part of the call or of its result."""
    finished = ending(event, then)
    is_long = isinstance(event, ToolStarted) and len(title(event)) > ONE_LINE
    output = next((each.output for each in then if isinstance(each, SubtaskChanged)), "")
    if output and _folds_result(ToolFinished(at=0, call="", output=output), ToolKind.OTHER):
        return True
    return is_long or (finished is not None and _folds_result(finished, tool_kind(event, then)))


def _folds_result(finished: ToolFinished, kind: ToolKind) -> bool:
    diff_lines = clean_block(finished.diff).split("\n")
    output = "" if _is_shown_by_diff(finished, kind) else clean_block(finished.output)
    lines = output.removesuffix("\n").split("\n")
    too_long = any(len(line) > FOLD_CHARACTERS for line in lines)
    most = _most_lines(finished, kind)
    return len(diff_lines) > FOLD_DIFF_LINES + 1 or too_long or bool(output and len(lines) > most + bool(most))


def _most_lines(finished: ToolFinished, kind: ToolKind) -> int:
    """Return how many lines of its folded output are drawn; of an error as many as of any other output."""
    return FOLDED_LINES.get(kind, FOLD_LINES) if finished.ok else FOLD_LINES


def _is_shown_by_diff(finished: ToolFinished, kind: ToolKind) -> bool:
    """Whether the output only says that the change was made."""
    return bool(finished.diff) and finished.ok and kind is ToolKind.EDIT


def cut_off(blob: str, style: TranscriptStyle) -> list[TextLine]:
    """Return the row that names the blob with the full text."""
    note = f"… truncated; the full text is stored as blob {clean_line(blob)[:12]}"
    return wrap([(note, Token.FAINT)], style.width, UNDER, UNDER) if blob else []


def result(finished: ToolFinished, style: TranscriptStyle, kind: ToolKind = ToolKind.OTHER) -> list[TextLine]:
    """Return the result of a call of a tool of this *kind*, as rows."""
    rows: list[TextLine] = []
    if finished.diff:
        lines = clean_block(finished.diff).removesuffix("\n").split("\n")
        shown = _count_folded(len(lines), FOLD_DIFF_LINES, style)
        rows += [*diff.draw_diff(lines[:shown], style.width, UNDER), *hidden(len(lines) - shown, "more lines", style)]
    if finished.output and not (style.fold and _is_shown_by_diff(finished, kind)):
        output = ansi_lines(finished.output, Token.OUTPUT if finished.ok else Token.FAILED)
        shown = _count_folded(len(output), _most_lines(finished, kind), style)
        for number, line in enumerate(output[:shown]):
            beginning, cut = _short(line, style)
            rows += wrap(beginning, style.width, UNDER if number else BELOW, UNDER, words=False)
            rows += hidden(cut, "more characters", style)
        rows += hidden(len(output) - shown, "more lines" if shown or rows else "lines", style)
    if style.opened and _folds_result(finished, kind):
        rows += fold_row("▴ collapse", style)
    return [*rows, *cut_off(finished.blob, style)]


def _count_folded(lines: int, most: int, style: TranscriptStyle) -> int:
    return lines if not style.fold or lines <= most + bool(most) else most


def _short(line: Sequence[Span], style: TranscriptStyle) -> tuple[list[Span], int]:
    """Return the part of *line* that is drawn, and how many characters are not."""
    left_out = max(0, sum(len(text) for text, _ in line) - FOLD_CHARACTERS) if style.fold else 0
    if not left_out:
        return [*line], 0
    left, shown = FOLD_CHARACTERS, list[Span]()
    for text, token in line:
        shown.append((text[:left], token))
        left -= len(shown[-1][0])
    return shown, left_out
