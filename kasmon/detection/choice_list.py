"""A list of choices among rows: where it stands, and each of them with its number and the mark. Pure.

It is one only where the numbers count up from 1 without a gap. A label that was wrapped goes on further in, and what
stands there is a part of it, though it may look like a choice.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kasmon.detection.rule_schema import MenuRule
from kasmon.detection.screenshot import ScreenRow

MOST: Final = 40
"""A longer list is none of choices."""


class ChoiceItem(NamedTuple):
    """One choice, as it stands there."""

    label: str
    note: str
    number: str
    """The digits in front of it; empty where there are none."""
    is_marked: bool
    is_placeholder: bool = False
    """The label is a hint in an empty field (`Row.is_placeholder`)."""


class ChoiceList(NamedTuple):
    """A list of choices; the row *end* is the first behind it."""

    start: int
    end: int
    items: list[ChoiceItem]


class _Part(NamedTuple):
    """A choice whose rows are still gathered."""

    row: int
    match: re.Match[str]
    labels: list[str]
    notes: list[str]


def listing(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    """The lowest list of choices on *rows*; None if there is none, or its numbers are not in order."""
    return _in_a_row(rows, rule) if rule.row else _in_rows(rows, rule)


def _in_rows(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    pattern = re.compile(rule.choice)
    matches = [pattern.search(row.seen) for row in rows]
    for start in reversed(range(len(rows))):
        first = matches[start]
        if first is None or _number(first) not in ("1", "") or _goes_on(rows[start], rule):
            continue
        if not _number(first) and start and matches[start - 1]:
            continue  # without numbers a list begins with its uppermost row
        parts, end = _parts(rows, matches, start, rule)
        numbers = [_number(part.match) for part in parts]
        if len(parts) > MOST or (numbers[0] and numbers != [str(at) for at in range(1, len(parts) + 1)]):
            return None
        return ChoiceList(start, end, [_item(part, rows[part.row], rule) for part in parts])
    return None


def _parts(
    rows: Sequence[ScreenRow], matches: Sequence[re.Match[str] | None], start: int, rule: MenuRule
) -> tuple[list[_Part], int]:
    """The choices from *start* on with the rows that go on with them, and the row behind the last."""
    parts: list[_Part] = []
    for at in range(start, len(rows)):
        match, goes_on = matches[at], _goes_on(rows[at], rule)
        if match is not None and (goes_on is None or _begins(match) <= _begins(parts[0].match)):
            parts.append(_Part(at, match, [match["label"].strip()], []))
        elif goes_on is not None:
            said = goes_on.groupdict()
            parts[-1].labels.append((said.get("label") or "").strip())
            parts[-1].notes.append((said.get("note") or "").strip())
        else:
            return parts, at
    return parts, len(rows)


def _item(part: _Part, row: ScreenRow, rule: MenuRule) -> ChoiceItem:
    match = part.match
    said = match.groupdict()
    notes = [(said.get("note") or "").strip(), *part.notes]
    return ChoiceItem(
        " ".join(label for label in part.labels if label),
        " ".join(note for note in notes if note),
        _number(match),
        _has_ground(row, match) if rule.ground else bool((said.get("mark") or "").strip()),
        rule.placeholder and row.is_placeholder(*match.span("label")),
    )


def _in_a_row(rows: Sequence[ScreenRow], rule: MenuRule) -> ChoiceList | None:
    """Choices beside each other: the lowest row with two or more."""
    pattern = re.compile(rule.choice)
    for at in reversed(range(len(rows))):
        found = list(pattern.finditer(rows[at].seen))
        if len(found) >= 2:
            items = [ChoiceItem(match["label"], "", "", _has_ground(rows[at], match)) for match in found]
            return ChoiceList(at, at + 1, items)
    return None


def _goes_on(row: ScreenRow, rule: MenuRule) -> re.Match[str] | None:
    return re.search(rule.more, row.seen) if rule.more else None


def _has_ground(row: ScreenRow, match: re.Match[str]) -> bool:
    """Whether the label stands on another ground than what is beside it."""
    start, end = match.span("label")
    ground, before = row.look_at(start), max(0, _begins(match) - 1)
    beside = row.look_at(end + 1 if row.text[end + 1 : end + 2].isspace() else before)
    return (ground.background, ground.reverse) != (beside.background, beside.reverse)


def _begins(match: re.Match[str]) -> int:
    """Where a choice's number, or without one its label, begins."""
    return match.start("number" if "number" in match.re.groupindex else "label")


def _number(match: re.Match[str]) -> str:
    word = match.groupdict().get("number") or ""
    return word if word.isascii() and word.isdecimal() else ""
