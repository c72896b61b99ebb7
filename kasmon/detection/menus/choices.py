"""Parses the menu on a terminal agent's screen into choices. It is parsed each time, never remembered.

Which digit means yes changes between versions of an agent: the third choice was "No" and became "auto mode".
So an answer has a key only if exactly one label means this answer, in a menu that is shown whole, with its choices
numbered in order and one of them marked. All other labels are shown, but kasmon presses no key for them.

Before pressing a key, the caller reads the screen again and compares `ScreenMenu.digest`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kasmon.detection.choice_list import ChoiceItem, find_list
from kasmon.detection.regions import ScreenRegions
from kasmon.detection.rules.schema import CallRule, MenuRule
from kasmon.detection.terminal_screen import ScreenRow, TerminalScreen
from kasmon.model.permission import Decision, RequestKind

ESCAPE: Final = "\x1b"
KEY_NAMES: Final = {"esc": ESCAPE, "escape": ESCAPE, "enter": "\r", "tab": "\t"}
"""The key names in agents' labels, with the characters to type."""
FRAMES: Final = "│┃"
RULERS: Final = " ─━╌▔▁╭╮╰╯"
REFUSALS: Final = frozenset({Decision.DENY, Decision.NEVER, Decision.CANCEL})


class MenuChoice(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    """The label as shown, joined where it was wrapped."""
    note: str = ""
    """The explanation under the label."""
    key: str = ""
    """The characters to type to take it; empty where only the arrow keys reach it."""
    decision: Decision | None = None
    """What it means; None if kasmon does not recognise the label."""
    marked: bool = False
    """Whether Enter would take it now."""
    free_text: bool = False
    is_inline: bool = msgspec.field(default=False, name="words")
    """Whether free text is typed while the mark is on it, and Enter then sends the text."""
    plain: bool = False
    """Whether it means no known answer and takes no text."""
    is_on: bool | None = None
    """Whether it is selected, where several may be; None if unknown."""


class ScreenMenu(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    name: str
    kind: RequestKind
    text: str
    """The whole request with its choices, for display: without frames, rulers and the mark."""
    choices: tuple[MenuChoice, ...]
    digest: str
    """SHA-256 of all that a person's decision depends on, as shown: another text or choice makes another digest."""
    no_plan: bool = False
    """Whether it asks for the approval of a plan without a text."""
    escape: Decision | None = None
    """What Escape means."""
    many: bool = False
    then: str = ""
    """The key to type once all requested choices are selected; empty if unknown."""
    opens: str = ""
    """The key to type on the free-text choice before the text."""
    entry: str | None = None
    """The text in the free-text row; None where there is no such row."""
    amends: str = ""
    """The key to type on a choice to add a reason; empty where the menu does not offer that."""
    unmarked: bool = False
    """Whether no choice is marked, and each has its key."""
    is_deaf: bool = False
    """Whether text is being written into one of the choices: keys would be text."""
    is_whole: bool = True
    """Whether the whole request is proven to be shown; if not, kasmon sends no consent."""
    head: str = ""
    """The request above the text of the tool call, for display."""
    call: str = ""
    """The visible part of the call's text, without blanks; empty where the request shows none."""
    has_start: bool = False
    """Whether `call` includes the beginning of the call's text."""
    named: str = ""
    """The subject of the call, where its text is not shown."""
    full: str = ""
    """The text of the call from a better source than the screen; empty if there is none. See `completed`."""
    shown_digest: str = ""
    """The `digest` before completion; empty if the menu was not completed."""

    @property
    def on_screen(self) -> str:
        """The digest of the screen's content alone."""
        return self.shown_digest or self.digest

    moves: tuple[str, str] = ("\x1b[A", "\x1b[B")
    """The keys that move the mark back and forward."""
    covers: str = ""
    """The scope of "always", where the request states it and the choice's label does not."""
    rows: tuple[int, int] = (0, 0)
    """The screen rows of the request with its choices, the second not included."""

    @cached_property
    def keys(self) -> Mapping[Decision, str]:
        """The key of each answer that one key gives; an answer that two labels claim has none.

        While the mark is on a choice of unknown meaning, only Escape is included: a person may be writing into that
        choice, and a digit would be text.
        """
        keys: dict[Decision, str] = {}
        for decision in Decision if self.reads_keys else ():
            choice = None if decision is Decision.CHOOSE else self.meaning(decision)
            if choice is not None and choice.key and (self.is_whole or decision in REFUSALS):
                keys[decision] = choice.key
        if self.escape is not None and self.escape not in keys:
            keys[self.escape] = ESCAPE
        return keys

    @property
    def marked(self) -> int | None:
        """The index of the choice that Enter would take now, from 0."""
        return next((at for at, choice in enumerate(self.choices) if choice.marked), None)

    @property
    def reads_keys(self) -> bool:
        """Whether typed characters are keys now, and not text for one of the choices."""
        if self.unmarked:
            return not self.is_deaf
        marked = None if self.marked is None else self.choices[self.marked]
        if self.is_deaf or marked is None:
            return False
        if marked.decision is None:
            return marked.plain
        return marked.decision is Decision.CHOOSE or self.meaning(marked.decision) is marked

    def meaning(self, decision: Decision) -> MenuChoice | None:
        """Return the only choice that means *decision*; None if there is none, or more than one."""
        meaning = [choice for choice in self.choices if choice.decision is decision]
        return meaning[0] if len(meaning) == 1 else None


def completed(menu: ScreenMenu, full: str) -> ScreenMenu:
    """Return *menu* with *full*, the whole text of its tool call, in place of the rows that show it."""
    lines = (*((menu.head,) if menu.head else ()), full, *_number_labels(menu.choices))
    digest = hashlib.sha256(f"{menu.digest}\0{full}".encode("utf-8", "replace")).hexdigest()
    return msgspec.structs.replace(
        menu, text="\n".join(lines), digest=digest, is_whole=True, full=full, shown_digest=menu.digest
    )


def shows(menu: ScreenMenu, text: str, values: Sequence[str] = ()) -> bool:
    """Return whether *menu* can be about a call of *text*: the visible part of its call must match *text* in place.

    Where it shows only the file that the call changes, one of *values*, the fields of the call, must be that file. The
    screen may show its path without the upper folders.
    """
    if not menu.call:
        return bool(menu.named) and any(f"/{value}".endswith(f"/{menu.named.strip()}") for value in values)
    whole = squeezed(text)
    if menu.is_whole:
        return whole == menu.call
    return whole.startswith(menu.call) if menu.has_start else menu.call in whole


def squeezed(text: str) -> str:
    """Return *text* without blanks: a screen breaks rows anywhere."""
    return "".join(text.split())


def find_menu(shot: TerminalScreen, regions: ScreenRegions, rule: MenuRule) -> ScreenMenu | None:
    """Return the lowest menu of this kind in its region; None if no such menu is shown completely."""
    area = regions.rows(rule.area)
    if not area:
        return None
    rows = [_strip_timer(row, rule) for row in shot.rows[area.start : area.stop]]
    listed = find_list(rows, rule)
    if listed is None:
        return None
    start, end = listed.start, listed.end
    choices = [_build_choice(item, rule) for item in listed.items]
    below = rows[end:]
    entries = ((match["text"].strip(), at + 1) for at, row in enumerate(below) if (match := _search(rule.entry, row)))
    entry, height = next(entries, (None, 0))
    question = re.compile(rule.question)
    asked = next((at for at in reversed(range(start)) if question.search(rows[at].pattern_text)), None)
    if asked is None or (rule.gap is not None and start - asked - 1 > rule.gap):
        return None
    if rule.foot and not any(_search(rule.foot, row) for row in rows[end - rule.row :]):
        return None
    if rule.last and not re.search(rule.last, choices[-1].label):
        return None
    if sum(choice.marked for choice in choices) != (0 if rule.unmarked else 1):
        return None
    call = _find_call(rows, start, asked, rule, has_scrolled=regions.has_scrolled(rule.area))
    return ScreenMenu(
        name=rule.name,
        kind=rule.kind,
        text="\n".join((*_format_rows(rows[:start]), *_number_labels(choices))),
        choices=tuple(choices),
        digest=_compute_digest(rule, rows[:start], choices),
        no_plan=rule.no_plan,
        escape=rule.escape,
        many=rule.many,
        then=rule.then,
        opens=rule.opens,
        entry=entry,
        amends=rule.opens_it if any(_search(rule.amends, row) for row in below) else "",
        unmarked=rule.unmarked,
        is_deaf=any(_search(rule.deaf, row) for row in below),
        is_whole=regions.is_certain(rule.area) and _is_whole(rows, start, rule) and call.has_lines,
        head="\n".join(_format_rows(rows[: call.begins])),
        call=call.text,
        has_start=call.has_start,
        named=call.named,
        moves=("\x1b[D", "\x1b[C") if rule.row else ("\x1b[A", "\x1b[B"),
        covers=" ".join(match["text"].strip() for row in rows[:start] if (match := _search(rule.covers, row))),
        rows=(area.start, area.start + end + height),
    )


def _strip_timer(row: ScreenRow, rule: MenuRule) -> ScreenRow:
    if not rule.timer or not re.search(rule.timer, row.text):
        return row
    return row._replace(
        text=re.sub(rule.timer, "", row.text).rstrip(), pattern_text=re.sub(rule.timer, "", row.pattern_text).rstrip()
    )


def _is_whole(rows: Sequence[ScreenRow], start: int, rule: MenuRule) -> bool:
    """Return whether one of the proofs of *rule* holds; the choices begin at row *start*."""
    if any(_search(rule.cut, row) for row in rows):
        return False
    request = rows[:start]
    return any(
        (not proof.rows or len(rows) <= proof.rows)
        and all(any(re.search(pattern, row.pattern_text) for row in request) for pattern in proof.all)
        and (not proof.frame or sum(re.search(proof.frame, row.pattern_text) is not None for row in request) >= 2)
        and (not proof.last or (bool(request) and re.search(proof.last, request[-1].pattern_text) is not None))
        for proof in rule.whole
    )


class _Call(NamedTuple):
    """The visible part of the tool call of a request."""

    begins: int
    text: str = ""
    has_start: bool = False
    named: str = ""
    has_lines: bool = True
    """Whether the ends of its lines are certain, where they count."""


def _find_call(rows: Sequence[ScreenRow], start: int, asked: int, rule: MenuRule, *, has_scrolled: bool) -> _Call:
    """Return the visible part of the call in *rows*.

    Args:
        start: the first row of the choices.
        asked: the row of the question, which is no part of a call above it.
        has_scrolled: its upper rows are off the screen.
    """
    request = rows[:start]
    if rule.call is None:
        return _Call(len(request))
    name = next((match["text"] for row in request if (match := _search(rule.call.named, row))), "")
    first = 0 if has_scrolled else next((at for at, row in enumerate(request) if _search(rule.call.begins, row)), None)
    if first is None:
        return _Call(len(request), named=name)
    begins = None if has_scrolled else _search(rule.call.begins, request[first])
    found = [] if begins is None else [begins]
    parts = [_text_of(begins)] if begins is not None else []
    has_start = begins is not None
    for row in request[first + len(parts) : asked if asked > first else len(request)]:
        if _search(rule.cut, row):
            has_start = has_start and any(parts)
        elif (match := _search(rule.call.row, row)) is not None:
            found.append(match)
            parts.append(_text_of(match))
        else:
            break
    has_lines = has_certain_lines(rule.call, found, rows)
    return _Call(first, squeezed("".join(parts)), has_start, name, has_lines)


def has_certain_lines(call: CallRule | None, text: Sequence[re.Match[str]], shown: Sequence[ScreenRow]) -> bool:
    """Return whether each row of *text*, if it is a command, ends where a line of it ends, as far as *shown* tells.

    A row is wrapped only where the next word does not fit. The width is that of the widest row *shown*, and the right
    margin as wide as the left one. Behind a backslash at the end of a row a blank would count, and is not visible. A
    run of blanks may be a tab.
    """
    if call is None or not any(_search(call.lines, row) for row in shown):
        return True
    rows = [(match.start("text"), _text_of(match).rstrip()) for match in text if "text" in match.groupdict()]
    while rows and not rows[-1][1]:
        rows.pop()
    if any(line.endswith("\\") or re.search(r"\s\s", line) for _, line in rows):
        return False
    margin = max(2, min((start for start, line in rows if line), default=0))
    edge = (
        max((sum(each.isascii() or each in FRAMES + RULERS for each in row.text) for row in shown), default=0) - margin
    )
    firsts = [re.sub(r"(?<=\S)\s.*", "", line) for _, line in rows[1:]]
    return all(
        start + _cells(line) + 1 + _cells(below) <= edge for (start, line), below in zip(rows, firsts, strict=False)
    )


def _text_of(match: re.Match[str]) -> str:
    return match.groupdict().get("text") or ""


def _cells(text: str) -> int:
    return sum(1 if each.isascii() else 2 for each in text)


def _search(pattern: str, row: ScreenRow) -> re.Match[str] | None:
    return re.search(pattern, row.pattern_text) if pattern else None


def _format_rows(request: Sequence[ScreenRow]) -> Iterator[str]:
    """Yield the rows of a request without frames, without empty rows at its ends, and without repeated empty rows."""
    was_empty = True
    for row in request:
        text = _strip_frames(row.text)
        if text or not was_empty:
            yield text
        was_empty = not text


def _strip_frames(text: str) -> str:
    """Return *text* without the frames around it; empty if it is only a ruler."""
    text = text.strip()
    while text[:1] in FRAMES and text:
        text = text[1:].removeprefix(" ").rstrip()
        text = text.removesuffix(FRAMES[0]).removesuffix(FRAMES[1]).rstrip()
    return text if text.strip(RULERS) else ""


def _number_labels(choices: Sequence[MenuChoice]) -> list[str]:
    return [f"{at}. {choice.label}" for at, choice in enumerate(choices, 1)]


def _compute_digest(rule: MenuRule, request: Sequence[ScreenRow], choices: Sequence[MenuChoice]) -> str:
    marks = {None: "", False: "[ ]", True: "[x]"}
    offered = (part for choice in choices for part in (choice.note, choice.key, marks[choice.is_on]))
    fields = ("" if choice.is_inline else "draft" for choice in choices if rule.placeholder)
    parts = (rule.kind, *(row.text for row in request), *_number_labels(choices), *offered, *fields)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()


def _build_choice(item: ChoiceItem, rule: MenuRule) -> MenuChoice:
    label = item.label
    toggle = re.match(rule.toggle, label) if rule.toggle else None
    if toggle is not None:
        label = label[toggle.end() :].strip()
    named = re.search(rule.key, label) if rule.key else None
    if named is not None:
        label = f"{label[: named.start()]}{label[named.end() :]}".strip()
    key = named["key"] if named else "" if rule.by_arrows or rule.key else item.number
    is_free = bool(rule.free and re.search(rule.free, label))
    decision = None if is_free else _find_decision(label, rule.answers)
    return MenuChoice(
        label=label,
        note=item.note,
        key=KEY_NAMES.get(key.lower(), key if len(key) == 1 else ""),
        decision=decision,
        marked=item.is_marked and not rule.unmarked,
        free_text=is_free,
        is_inline=is_free
        and bool(rule.words and re.search(rule.words, label))
        and (item.is_placeholder or not rule.placeholder),
        is_on=None if toggle is None or is_free else bool(toggle["on"].strip()),
        plain=decision is None and not is_free and bool(rule.plain and re.search(rule.plain, label)),
    )


def _find_decision(label: str, answers: Mapping[Decision, str]) -> Decision | None:
    """Return the meaning of *label*; None if it is unknown or ambiguous."""
    meant = [decision for decision, pattern in answers.items() if re.search(pattern, label)]
    certain = [decision for decision in meant if decision is not Decision.CHOOSE]
    if certain:
        return certain[0] if len(certain) == 1 else None
    return meant[0] if meant else None
