"""The choices on a terminal agent's screen: read from the menu that stands there now, never remembered.

Which digit means yes changes between versions of an agent: the third choice was "No" and became "auto mode".
So an answer has a key only where exactly one label says that it means this answer, in a menu that stands there whole,
its choices numbered in order, with one of them marked. Every other label is shown, and kasmon presses it for nobody.

Whoever presses a key looks again first, and presses it only where `Menu.digest` is still the same.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kasmon.model.permission import AskKind, Decision
from kasmon.screens.listing import Item, listing
from kasmon.screens.region import Regions
from kasmon.screens.rules import MenuRule
from kasmon.screens.shot import Row, ScreenShot

ESCAPE: Final = "\x1b"
KEY_NAMES: Final = {"esc": ESCAPE, "escape": ESCAPE, "enter": "\r", "tab": "\t"}
"""How agents write keys in their labels, and what is typed then."""
FRAMES: Final = "│┃"
RULERS: Final = " ─━╌▔▁╭╮╰╯"
REFUSALS: Final = frozenset({Decision.DENY, Decision.NEVER, Decision.CANCEL})


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One of the choices."""

    label: str
    """As it stands there, joined where it was wrapped."""
    note: str = ""
    """What stands under it to explain it."""
    key: str = ""
    """What is typed to take it, as characters; empty where only the arrows reach it."""
    decision: Decision | None = None
    """What it means; None where its label says nothing that kasmon knows."""
    marked: bool = False
    """Enter would take this one now."""
    free_text: bool = False
    """It takes a person's own words."""
    words: bool = False
    """They are typed into it while the mark stands on it, and Enter sends them."""
    plain: bool = False
    """It means none of the answers, and nobody writes into it."""
    is_on: bool | None = None
    """Whether it is chosen, where several may be; None for a choice of which that cannot be said."""


class Menu(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A menu that stands on a screen."""

    name: str
    kind: AskKind
    text: str
    """The whole request with its choices, to read: without frames, rulers and the mark."""
    choices: tuple[Choice, ...]
    digest: str
    """SHA-256 of all that a person decides on, as it stands there: another text or another choice is another menu."""
    escape: Decision | None = None
    """What Escape means."""
    many: bool = False
    """Several may be chosen."""
    then: str = ""
    """What is typed when all that is wanted of them is chosen; empty where nobody knows."""
    opens: str = ""
    """What is typed on the choice for own words before them."""
    entry: str | None = None
    """What stands in the row for own words; None where there is no such row."""
    amends: str = ""
    """What is typed on a choice to add words to it; empty where the menu does not say that it takes them."""
    unmarked: bool = False
    """No choice is marked, and each has its key."""
    is_deaf: bool = False
    """Somebody writes into one of the choices: what is typed is text."""
    is_whole: bool = True
    """Whether all of the request is shown; where a part of it is hidden, kasmon carries no consent."""
    moves: tuple[str, str] = ("\x1b[A", "\x1b[B")
    """What is typed to move the mark back and on."""
    covers: str = ""
    """What "always" allows, where the request says it and not the choice's label."""
    rows: tuple[int, int] = (0, 0)
    """On which of the screen's rows the request stands with its choices, the second not included."""

    @cached_property
    def keys(self) -> Mapping[Decision, str]:
        """What is typed for each answer that one key gives; an answer that two labels claim has none.

        There is none but Escape while the mark stands on a choice of which nobody knows what it is: somebody may be
        writing into it, and a digit would be text.
        """
        keys: dict[Decision, str] = {}
        for decision in Decision if self.hears else ():
            choice = None if decision is Decision.CHOOSE else self.meaning(decision)
            if choice is not None and choice.key and (self.is_whole or decision in REFUSALS):
                keys[decision] = choice.key
        if self.escape is not None and self.escape not in keys:
            keys[self.escape] = ESCAPE
        return keys

    @property
    def marked(self) -> int | None:
        """Which of the choices Enter would take now, from 0."""
        return next((at for at, choice in enumerate(self.choices) if choice.marked), None)

    @property
    def hears(self) -> bool:
        """Whether what is typed now is a key, and no text for one of the choices."""
        if self.unmarked:
            return not self.is_deaf
        marked = None if self.marked is None else self.choices[self.marked]
        if self.is_deaf or marked is None:
            return False
        if marked.decision is None:
            return marked.plain
        return marked.decision is Decision.CHOOSE or self.meaning(marked.decision) is marked

    def meaning(self, decision: Decision) -> Choice | None:
        """The only choice that means *decision*; None where there is none, or more than one."""
        meaning = [choice for choice in self.choices if choice.decision is decision]
        return meaning[0] if len(meaning) == 1 else None

    def steps(self, choice: Choice) -> int | None:
        """How often the mark has to move on (back, where negative) to stand on *choice*; None where nobody knows."""
        return None if self.marked is None else self.choices.index(choice) - self.marked


def menu_in(shot: ScreenShot, regions: Regions, rule: MenuRule) -> Menu | None:
    """The lowest menu of this kind in its region; None if there is none that stands there whole."""
    area = regions.rows(rule.area)
    if not area:
        return None
    rows = shot.rows[area.start : area.stop]
    listed = listing(rows, rule)
    if listed is None:
        return None
    start, end = listed.start, listed.end
    choices = [_choice(item, rule) for item in listed.items]
    below = rows[end:]
    entry = _entry(below, rule)
    question = re.compile(rule.question)
    asked = next((at for at in reversed(range(start)) if question.search(rows[at].seen)), None)
    if asked is None or (rule.gap is not None and start - asked - 1 > rule.gap):
        return None
    if rule.foot and not any(re.search(rule.foot, row.seen) for row in rows[end - rule.row :]):
        return None
    if rule.last and not re.search(rule.last, choices[-1].label):
        return None
    if sum(choice.marked for choice in choices) != (0 if rule.unmarked else 1):
        return None
    return Menu(
        name=rule.name,
        kind=rule.kind,
        text="\n".join((*_readable(rows[:start]), *_numbered(choices))),
        choices=tuple(choices),
        digest=_digest(rule, rows[:start], choices),
        escape=rule.escape,
        many=rule.many,
        then=rule.then,
        opens=rule.opens,
        entry=None if entry is None else entry.text,
        amends=rule.opens_it if rule.amends and any(re.search(rule.amends, row.seen) for row in below) else "",
        unmarked=rule.unmarked,
        is_deaf=bool(rule.deaf) and any(re.search(rule.deaf, row.seen) for row in below),
        is_whole=not (rule.cut and any(re.search(rule.cut, row.seen) for row in rows[:start])),
        moves=("\x1b[D", "\x1b[C") if rule.row else ("\x1b[A", "\x1b[B"),
        covers=_covers(rows[:start], rule),
        rows=(area.start, area.start + end + (0 if entry is None else entry.end)),
    )


class _Entry(NamedTuple):
    """What stands in the row for own words, and the row behind it."""

    text: str
    end: int


def _entry(below: Sequence[Row], rule: MenuRule) -> _Entry | None:
    for at, row in enumerate(below if rule.entry else ()):
        if match := re.search(rule.entry, row.seen):
            return _Entry(match["text"].strip(), at + 1)
    return None


def _covers(request: Sequence[Row], rule: MenuRule) -> str:
    found = (re.search(rule.covers, row.seen) for row in request) if rule.covers else ()
    return " ".join(match["text"].strip() for match in found if match)


def _readable(request: Sequence[Row]) -> Iterator[str]:
    """The rows of a request without what frames them, and without empty ones at its ends or side by side."""
    was_empty = True
    for row in request:
        text = _unframed(row.text)
        if text or not was_empty:
            yield text
        was_empty = not text


def _unframed(text: str) -> str:
    """*text* without the frames around it; empty where it is nothing but a ruler."""
    text = text.strip()
    while text[:1] in FRAMES and text:
        text = text[1:].removeprefix(" ").rstrip()
        text = text.removesuffix(FRAMES[0]).removesuffix(FRAMES[1]).rstrip()
    return text if text.strip(RULERS) else ""


def _numbered(choices: Sequence[Choice]) -> list[str]:
    return [f"{at}. {choice.label}" for at, choice in enumerate(choices, 1)]


def _digest(rule: MenuRule, request: Sequence[Row], choices: Sequence[Choice]) -> str:
    marks = {None: "", False: "[ ]", True: "[x]"}
    offered = (part for choice in choices for part in (choice.note, choice.key, marks[choice.is_on]))
    told = (rule.kind, *(row.text for row in request), *_numbered(choices), *offered)
    return hashlib.sha256("\n".join(told).encode("utf-8", "replace")).hexdigest()


def _choice(item: Item, rule: MenuRule) -> Choice:
    label = item.label
    toggle = re.match(rule.toggle, label) if rule.toggle else None
    if toggle is not None:
        label = label[toggle.end() :].strip()
    named = re.search(rule.key, label) if rule.key else None
    if named is not None:
        label = f"{label[: named.start()]}{label[named.end() :]}".strip()
    key = named["key"] if named else "" if rule.by_arrows or rule.key else item.number
    is_free = bool(rule.free and re.search(rule.free, label))
    decision = None if is_free else _decision(label, rule.answers)
    return Choice(
        label=label,
        note=item.note,
        key=KEY_NAMES.get(key.lower(), key if len(key) == 1 else ""),
        decision=decision,
        marked=item.is_marked and not rule.unmarked,
        free_text=is_free,
        words=is_free and bool(rule.words and re.search(rule.words, label)),
        is_on=None if toggle is None or is_free else bool(toggle["on"].strip()),
        plain=decision is None and not is_free and bool(rule.plain and re.search(rule.plain, label)),
    )


def _decision(label: str, answers: Mapping[Decision, str]) -> Decision | None:
    """What *label* means; None where it means nothing that is known, or two things."""
    meant = [decision for decision, pattern in answers.items() if re.search(pattern, label)]
    certain = [decision for decision in meant if decision is not Decision.CHOOSE]
    if certain:
        return certain[0] if len(certain) == 1 else None
    return meant[0] if meant else None
