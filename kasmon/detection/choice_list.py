"""Finds a list of choices among screen rows: its position, and each choice with its number and mark. Pure.

The numbers must count up from 1 without a gap. A wrapped label continues in rows that are indented further; such a
row belongs to the label even if it looks like a choice.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kasmon.detection.rules.schema import MenuRule
from kasmon.detection.terminal_screen import ScreenRow

MOST: Final = 40
"""A longer list is not taken as choices."""


class ChoiceItem(NamedTuple):
    """One choice, as shown on the screen."""

    label: str
    note: str
    number: str
    """The digits before the label; empty if there are none."""
    is_marked: bool
    is_placeholder: bool = False
    """Whether the label is a hint in an empty field (`ScreenRow.is_placeholder`)."""


class ChoiceList(NamedTuple):
    """A list of choices, from row *start* up to, but not including, row *end*."""

    start: int
    end: int
    items: list[ChoiceItem]


class _Part(NamedTuple):
    row: int
    match: re.Match[str]
    labels: list[str]
    notes: list[str]


def find_list(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    """Return the lowest list of choices on *rows*; None if there is none, or its numbers are not in order."""
    return _find_in_row(rows, rule) if rule.row else _find_in_rows(rows, rule)


def _find_in_rows(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    pattern = re.compile(rule.choice)
    matches = [pattern.search(row.pattern_text) for row in rows]
    for start in reversed(range(len(rows))):
        first = matches[start]
        if first is None or _number(first) not in ("1", "") or _match_continuation(rows[start], rule):
            continue
        if not _number(first) and start and matches[start - 1]:
            continue  # a list without numbers begins with its topmost row
        parts, end = _collect_parts(rows, matches, start, rule)
        numbers = [_number(part.match) for part in parts]
        if len(parts) > MOST or (numbers[0] and numbers != [str(at) for at in range(1, len(parts) + 1)]):
            return None
        return ChoiceList(start, end, [_build_item(part, rows[part.row], rule) for part in parts])
    return None


def _collect_parts(
    rows: Sequence[ScreenRow], matches: Sequence[re.Match[str] | None], start: int, rule: MenuRule
) -> tuple[list[_Part], int]:
    """Return the choices from row *start* on, with their continuation rows, and the row after the last."""
    parts: list[_Part] = []
    for at in range(start, len(rows)):
        match, continuation = matches[at], _match_continuation(rows[at], rule)
        if match is not None and (continuation is None or _start_column(match) <= _start_column(parts[0].match)):
            parts.append(_Part(at, match, [match["label"].strip()], []))
        elif continuation is not None:
            groups = continuation.groupdict()
            parts[-1].labels.append((groups.get("label") or "").strip())
            parts[-1].notes.append((groups.get("note") or "").strip())
        else:
            return parts, at
    return parts, len(rows)


def _build_item(part: _Part, row: ScreenRow, rule: MenuRule) -> ChoiceItem:
    match = part.match
    groups = match.groupdict()
    notes = [(groups.get("note") or "").strip(), *part.notes]
    return ChoiceItem(
        " ".join(label for label in part.labels if label),
        " ".join(note for note in notes if note),
        _number(match),
        _has_background(row, match) if rule.ground else bool((groups.get("mark") or "").strip()),
        rule.placeholder and row.is_placeholder(*match.span("label")),
    )


def _find_in_row(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    """Return choices beside each other: the lowest row with two or more."""
    pattern = re.compile(rule.choice)
    for at in reversed(range(len(rows))):
        found = list(pattern.finditer(rows[at].pattern_text))
        if len(found) >= 2:
            items = [ChoiceItem(match["label"], "", "", _has_background(rows[at], match)) for match in found]
            return ChoiceList(at, at + 1, items)
    return None


def _match_continuation(row: ScreenRow, rule: MenuRule) -> re.Match[str] | None:
    return re.search(rule.more, row.pattern_text) if rule.more else None


def _has_background(row: ScreenRow, match: re.Match[str]) -> bool:
    """Return whether the label's background differs from that of the text beside it."""
    start, end = match.span("label")
    style, before = row.style_at(start), max(0, _start_column(match) - 1)
    beside = row.style_at(end + 1 if row.text[end + 1 : end + 2].isspace() else before)
    return (style.background, style.reverse) != (beside.background, beside.reverse)


def _start_column(match: re.Match[str]) -> int:
    """Return the column where a choice's number begins, or its label if it has no number."""
    return match.start("number" if "number" in match.re.groupindex else "label")


def _number(match: re.Match[str]) -> str:
    word = match.groupdict().get("number") or ""
    return word if word.isascii() and word.isdecimal() else ""
