"""Guesses that an unchanged screen asks something: its cursor is in a list of choices, or behind a question.

For programs without a rule file. The caller ensures that the screen has not changed for a while. The result is a
guess and has no keys: kasmon only offers to focus the session.
"""

import re
import unicodedata
from typing import Final

import msgspec

from kasmon.detection.terminal_screen import ScreenRow, TerminalScreen

NEAR: Final = 4
"""The largest distance, in rows, between the choices and the cursor or the last row."""
MARKS: Final = "❯›▶►▸→⇒➜➤●◉⦿◆■☛✓✔☑>*"
LONGEST: Final = 2000
CONTEXT: Final = 8
"""How many rows above the choices are included in the text."""

_BOX: Final = " │┃|║▌▐\u00a0"
_NUMBERED: Final = re.compile(rf"^(?P<mark>[{MARKS}])? ?[\[(（]?(?P<number>\d{{1,2}})[\])）.:、．：] ?\S")
_MARKED: Final = re.compile(rf"^(?P<mark>[{MARKS}○◯◇□☐◻]) ?(?P<label>\S.*)$")
_KEYS: Final = re.compile(
    r"[\[(（]\s?(?>(?:\(?[A-Za-z]\)?[A-Za-z]{0,8}\s?[/|,、]\s?){1,4})[\[(]?[A-Za-z][\])]?[A-Za-z]{0,10}[\])]?\s?[\])）]\s?[:?：？>]?$"
)
_QUESTION: Final = re.compile(
    rf"^(?![{MARKS}$%#]).*(?:\w.*[?？؟]|\b(?i:password|passphrase|passcode|pin)\b.*[:：]"
    r"|\b[Pp]ress(?i: (?:\[|<)?(?:enter|return|any key|a key)\b).*)$"
)
_RULER: Final = re.compile(r"^\s*+(?:[─━═▄▀▔▁╌_=+-]{8}|[╭┌╔])")
_PROMPTS: Final = "?:>？：؟]）)"


class MenuGuess(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence that a screen probably asks something."""

    text: str
    """The screen text from the question to the last choice."""
    sign: str
    """`list`: one of several is marked; `numbers`: the cursor is under numbered choices; `keys`: letters as y/n;
    `line`: the cursor is behind a question, on the last row."""


def probably_asking(shot: TerminalScreen) -> MenuGuess | None:
    """Return what an unchanged screen probably asks; None if it shows no choices near its cursor."""
    at = shot.cursor_row if shot.cursor_visible else shot.end - 1
    if at is None or not shot.end:
        return None
    at = min(at, shot.end - 1)
    row = shot.rows[at].text
    waits = shot.cursor_visible and shot.is_cursor_at_end
    if waits and _KEYS.search(_strip_box(row)):
        return MenuGuess(text=_collect_text(shot, at, at + 1), sign="keys")
    if waits and shot.cursor_row == shot.end - 1 and _QUESTION.search(_strip_box(row)):
        return MenuGuess(text=_strip_box(row), sign="line")
    numbered = _find_numbered(shot)
    found = numbered or _find_bullets(shot)
    if found is None:
        return None
    start, stop, has_mark = found
    away = start - at if at < start else max(0, at - stop + 1)
    if numbered is None and _is_input(shot, start, stop):
        return None
    if away > NEAR or (not shot.cursor_visible and shot.end - stop > NEAR):
        return None
    if has_mark:
        return MenuGuess(text=_collect_text(shot, start, stop), sign="list")
    waits = waits and at >= stop and len(row.strip()) > 1 and row.rstrip().endswith(tuple(_PROMPTS))
    return MenuGuess(text=_collect_text(shot, start, stop), sign="numbers") if waits else None


def _find_numbered(shot: TerminalScreen) -> tuple[int, int, bool] | None:
    """Return the lowest two or more choices whose numbers count up: first row, row after the last, is one marked."""
    rows = shot.rows
    entries: list[tuple[int, int | None, bool]] = []
    for at in reversed(range(shot.end)):
        text = _strip_box(rows[at].text)
        if match := _NUMBERED.match(text):
            entries.insert(0, (at, int(match["number"]), bool(match["mark"]) or _stands_out(rows[at])))
            if int(match["number"]) <= 1:
                break
        elif (entries and not text and entries[0][0] - at > 2) or (entries and entries[0][0] - at > NEAR):
            break
    numbers = [number for _, number, _ in entries]
    if len(entries) >= 2 and numbers == list(range(numbers[0] or 0, (numbers[0] or 0) + len(numbers))):
        marks = sum(marked for _, _, marked in entries)
        return entries[0][0], entries[-1][0] + 1, marks == 1
    return None


def _find_bullets(shot: TerminalScreen) -> tuple[int, int, bool] | None:
    """Return choices without numbers, likewise: adjacent rows with the same indent, one of which has a mark."""
    rows = shot.rows
    for at in reversed(range(max(0, shot.end - 3 * NEAR), shot.end)):
        match = _MARKED.match(_strip_box(rows[at].text))
        if match is None or match["mark"] in ">*✓✔" or not _is_label(match["label"]):
            continue
        column = rows[at].text.index(match["mark"])
        beside = [
            other
            for other in (at - 1, at + 1)
            if 0 <= other < shot.end and _is_beside(rows[other].text, column, match["mark"])
        ]
        if beside and (match["mark"] not in "●■◆" or _open_twin(rows, at, column)):
            return min(at, *beside), max(at, *beside) + 1, True
    return None


def _is_input(shot: TerminalScreen, start: int, stop: int) -> bool:
    """Return whether the cursor, visible or not, is right behind a text in these rows, as in an input field."""
    if shot.cursor is None or shot.cursor[0] == 0 or shot.cursor_row is None:
        return False
    return start <= shot.cursor_row < stop and shot.is_cursor_at_end


def _is_beside(text: str, column: int, mark: str) -> bool:
    if len(text) <= column + 1 or text[:column].strip(_BOX):
        return False
    first = text[column]
    return (first == " " or (first in "○◯◇□☐◻" and first != mark)) and bool(text[column + 1 : column + 3].strip())


def _open_twin(rows: tuple[ScreenRow, ...], at: int, column: int) -> bool:
    """Return whether an adjacent row has an open mark (`○`), like radio buttons; a lone bullet is a list in a text."""
    return any(
        rows[other].text[column : column + 1] in tuple("○◯◇□☐◻") for other in (at - 1, at + 1) if 0 <= other < len(rows)
    )


def _is_label(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _stands_out(row: ScreenRow) -> bool:
    return any(run.style.reverse or run.style.background for run in row.runs)


def _strip_box(text: str) -> str:
    return text.strip(_BOX)


def _collect_text(shot: TerminalScreen, start: int, stop: int) -> str:
    """Return the text of rows *start* to *stop*, with the rows above them up to a ruler."""
    above = start
    while above and start - above < CONTEXT and not _RULER.match(shot.rows[above - 1].text):
        above -= 1
    return "\n".join(line for row in shot.rows[above:stop] if (line := _strip_box(row.text)))[:LONGEST]
