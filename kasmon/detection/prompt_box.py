"""Finds the composer, the box in which a person types, and separates their draft from the agent's own text. Pure.

Agents also write hints ("Ask Codex to do anything"), suggestions and completions into it. Such faint text is no draft.
Text of unknown origin counts as a draft, so that kasmon never overwrites or sends what a person typed.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from kasmon.detection.rules.schema import ComposerRule
from kasmon.detection.terminal_screen import ScreenRow, TerminalScreen

MOST_ROWS: Final = 60
"""The greatest height of a box, in rows."""
SCROLLS: Final = 3
"""A box of at least this many rows may show only the end of its text."""


class Composer(msgspec.Struct, frozen=True, kw_only=True):
    """The composer as shown on a screen."""

    first_row: int
    last_row: int
    draft: str = ""
    """The text that a person typed, one line per row; wrapped lines cannot be recognised."""
    ghost: str = ""
    """The text that the agent itself wrote there."""

    @property
    def rows(self) -> range:
        return range(self.first_row, self.last_row + 1)


def composer(shot: TerminalScreen, rule: ComposerRule | None) -> Composer | None:
    """Return the composer on *shot*; None if *rule* finds none."""
    if rule is None:
        return None
    box = _above_landmark(shot, rule) if rule.bottom else _around_cursor(shot, rule)
    if box is None or not _has_cursor(shot, rule, box):
        return None
    drafts, ghosts = list[str](), list[str]()
    for at, match in _matches(shot, rule, box):
        if match is None:
            return None
        draft, ghost = _split_draft(shot.rows[at], match, rule)
        drafts.append(draft)
        ghosts.append(ghost)
    if not drafts:
        return None
    return Composer(
        first_row=box.start, last_row=box.stop - 1, draft="\n".join(drafts).strip(), ghost="\n".join(ghosts).strip()
    )


def contains_text(text: str, box: Composer, rule: ComposerRule) -> bool:
    """Return whether *box* contains exactly *text*, as far as the screen shows it.

    A long paste may appear as a placeholder, and in a box of several rows the end is enough. Whitespace, which is lost
    at row ends, and characters without a cell of their own are ignored.
    """
    if rule.pasted and re.search(rule.pasted, box.draft.replace("\n", " ")):
        return True
    shown, wanted = visible_characters(box.draft), visible_characters(text)
    if shown == wanted or (wanted[:1] and wanted[:1] in rule.modes and shown == wanted[1:]):
        return True
    return len(box.rows) >= SCROLLS and bool(shown) and wanted.endswith(shown)


@lru_cache(maxsize=8)
def visible_characters(text: str) -> str:
    """Return the characters of *text* that are visible in cells of their own."""
    if text.isascii():
        return "".join(text.split())
    whole = unicodedata.normalize("NFKC", text)
    return "".join(sign for sign in whole if unicodedata.category(sign)[0] not in "ZCM" and not sign.isspace())


def _has_cursor(shot: TerminalScreen, rule: ComposerRule, box: range) -> bool:
    if not rule.cursor or shot.cursor is None:
        return True
    return shot.cursor_row in box and (rule.cursor == "inside" or shot.cursor_visible)


def _around_cursor(shot: TerminalScreen, rule: ComposerRule) -> range | None:
    """Return the rows from the nearest first row at or above the cursor to the last continuation row."""
    at, end = shot.cursor_row, shot.end
    if shot.cursor is None and rule.foot:
        foot, first = re.compile(rule.foot), re.compile(rule.first)
        if not any(foot.search(row.pattern_text) for row in shot.rows[:end]):
            return None
        at = next((row for row in reversed(range(end)) if first.search(shot.rows[row].pattern_text)), None)
    if at is None:
        return None
    start = _first_row(shot, rule, at + 1) if rule.more else at
    if start is None:
        return None
    more = re.compile(rule.more)
    stop = at + 1
    while rule.more and stop < end and shot.rows[stop].text and more.search(shot.rows[stop].pattern_text):
        stop += 1
    return range(start, stop)


def _above_landmark(shot: TerminalScreen, rule: ComposerRule) -> range | None:
    bottom, foot = re.compile(rule.bottom), re.compile(rule.foot)
    under = next((at for at in reversed(range(shot.end)) if bottom.search(shot.rows[at].pattern_text)), None)
    if under is None:
        return None
    if rule.foot and not any(foot.search(row.pattern_text) for row in shot.rows[under : shot.end]):
        return None
    if not rule.top:
        start = _first_row(shot, rule, under)
    else:
        top = re.compile(rule.top)
        above = range(under - 1, max(-1, under - MOST_ROWS), -1)
        start = next((at + 1 for at in above if top.search(shot.rows[at].pattern_text)), None)
    return None if start is None or start == under else range(start, under)


def _first_row(shot: TerminalScreen, rule: ComposerRule, end: int) -> int | None:
    first = re.compile(rule.first)
    return next(
        (at for at in range(end - 1, max(-1, end - MOST_ROWS), -1) if first.search(shot.rows[at].pattern_text)), None
    )


def _matches(shot: TerminalScreen, rule: ComposerRule, box: range) -> Iterator[tuple[int, re.Match[str] | None]]:
    """Yield each text row of *box* with its match; the match is None if the row fits no row pattern of the box."""
    first, more = re.compile(rule.first), re.compile(rule.more)
    for at in box[: len(box) - rule.skip_last]:
        text = shot.rows[at].pattern_text
        match = first.search(text) if at == box.start or not rule.more else more.search(text)
        if match is not None or text.strip():
            yield at, match


def _split_draft(row: ScreenRow, match: re.Match[str], rule: ComposerRule) -> tuple[str, str]:
    """Return the text that a person typed in *row*, and the text that the agent wrote there."""
    start, end = match.span("draft") if "draft" in match.re.groupindex else (-1, -1)
    if start < 0:
        return "", ""
    text = row.text[start:end]
    if not rule.looks_faint or not text.strip():
        return text.rstrip(), ""
    faint = {at for run in row.runs if run.style.faint for at in range(max(start, run.start), min(end, run.end))}
    solid = [at for at in range(start, end) if at not in faint and not text[at - start].isspace()]
    typed = 0 if not solid or row.is_placeholder(start, end) else solid[-1] + 1 - start
    return text[:typed].rstrip(), text[typed:].strip()
