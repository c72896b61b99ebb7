"""Maps an answer to the menu on a screen: which choice to take and by which key, or why it cannot be given. Pure.

The key is the one that the label shows now. For a label without a key, the mark is moved to it and Enter takes it.
That is never done for a choice whose label does not clearly mean the answer.
"""

import re
from typing import Final, NamedTuple

from kasmon.detection.menus.choices import ESCAPE, REFUSALS, MenuChoice, ScreenMenu
from kasmon.errors import RefusedError, UnableError
from kasmon.model.permission import Decision
from kasmon.sanitize import outgoing

TAKEN: Final = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.CANCEL)
"""The decisions that a menu may offer besides `CHOOSE`, in display order."""
LONGEST_WORDS: Final = 60
"""The most bytes of free text that are typed: it must fit in one row, to be verified there before Enter."""


class MenuAnswer(NamedTuple):
    """The steps that give one answer."""

    key: str
    """The key to type; empty where the mark has to be moved to the choice, which Enter then takes."""
    choice: int | None
    """The index of the choice to take, from 0; None where Escape answers."""
    text: str = ""
    """The free text to type into the choice before Enter."""
    opens: str = ""
    """The key to type on the choice before the free text."""
    label: str = ""
    """The choice's label with the free text; empty where that appears elsewhere (`ScreenMenu.entry`, or its note)."""
    selected: frozenset[int] | None = None
    """The indices of all choices to select before `key`, and no others; None where one choice answers."""


def decisions(menu: ScreenMenu) -> tuple[Decision, ...]:
    """Return the decisions that *menu* accepts, `CHOOSE` for one of its options first."""
    choosing = (Decision.CHOOSE,) if options(menu) or find_free_text(menu) is not None else ()
    return (*choosing, *(decision for decision in TAKEN if _find_answer(menu, decision) is not None))


def options(menu: ScreenMenu) -> tuple[MenuChoice, ...]:
    """Return the options of a question; empty if it is unknown how to choose them, or not all of it is shown."""
    if (menu.many and not menu.then) or not (menu.reads_keys and menu.is_whole):
        return ()
    offered = [choice for choice in menu.choices if choice.decision is Decision.CHOOSE]
    if menu.many:
        offered = [choice for choice in offered if choice.is_on is not None and choice.key]
    labels = [choice.label for choice in menu.choices]
    return tuple(choice for choice in offered if labels.count(choice.label) == 1)


def find_free_text(menu: ScreenMenu) -> MenuChoice | None:
    """Return the choice that takes free text, if the rules of the menu say how it is typed."""
    takes = [choice for choice in menu.choices if choice.is_inline]
    if len(takes) != 1 or menu.many:
        return None
    is_field = menu.is_whole and len(menu.choices) == 1 and takes[0].marked
    return takes[0] if is_field or options(menu) else None


def accepts_reason(menu: ScreenMenu) -> bool:
    """Return whether a denial can include a reason."""
    return bool(menu.amends) and _find_amendable(menu, Decision.DENY) is not None


def plan_keys(menu: ScreenMenu, decision: Decision, labels: tuple[str, ...] = (), reason: str = "") -> MenuAnswer:
    """Return the steps that give *decision* to *menu*, with option *labels* for `CHOOSE`, or a *reason* for a denial.

    Raises:
        UnableError: if the menu does not show how.
        RefusedError: if there is no such option.
    """
    if reason:
        return _answer_with_reason(menu, decision, reason)
    if decision is Decision.CHOOSE:
        return _answer_choice(menu, labels)
    found = _find_answer(menu, decision)
    if found is None:
        raise UnableError(f"the menu on the screen has no key for {decision!s}.", hint="Focus the session.")
    return found


def _find_amendable(menu: ScreenMenu, decision: Decision) -> MenuChoice | None:
    may = menu.reads_keys and decision in REFUSALS and menu.marked is not None
    return menu.meaning(decision) if may else None


def _answer_with_reason(menu: ScreenMenu, decision: Decision, reason: str) -> MenuAnswer:
    choice = _find_amendable(menu, decision) if menu.amends else None
    if choice is None:
        raise UnableError("the menu on the screen accepts no reason.", hint="Answer without one, or focus the session.")
    reason_text = _clean_text(reason)
    return MenuAnswer("", menu.choices.index(choice), reason_text, menu.amends, f"{choice.label}, {reason_text}")


def _answer_several(menu: ScreenMenu, labels: tuple[str, ...], offered: tuple[MenuChoice, ...]) -> MenuAnswer:
    known = {choice.label: menu.choices.index(choice) for choice in offered}
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise RefusedError(f"the menu has no option {unknown[0]!r}.", hint=f"Options: {', '.join(known)}.")
    return MenuAnswer(menu.then, None, selected=frozenset(known[label] for label in labels))


def _answer_choice(menu: ScreenMenu, labels: tuple[str, ...]) -> MenuAnswer:
    offered, own = options(menu), find_free_text(menu)
    if menu.many and offered and labels:
        return _answer_several(menu, labels, offered)
    if len(labels) != 1 or not (offered or own):
        raise UnableError("this menu is not answered by one of its options.", hint="Focus the session.")
    choice = next((choice for choice in offered if choice.label == labels[0]), None)
    if choice is None and own is not None:
        label = _clean_text(labels[0])
        return MenuAnswer("", menu.choices.index(own), label, menu.opens, "" if menu.opens else label)
    if choice is None:
        offers = ", ".join(choice.label for choice in offered)
        raise RefusedError(f"the menu has no option {labels[0]!r}.", hint=f"Options: {offers}.")
    return MenuAnswer(choice.key, menu.choices.index(choice))


def _clean_text(text: str) -> str:
    """Return *text* in a form that can be typed into one row. Raises `UnableError` if there is none."""
    typed = outgoing(text).strip()
    if not typed or "\n" in typed or "\t" in typed or len(typed.encode()) > LONGEST_WORDS:
        raise UnableError(
            f"own words are one line of at most {LONGEST_WORDS} bytes here.", hint="Focus the session to write more."
        )
    return typed


def _find_answer(menu: ScreenMenu, decision: Decision) -> MenuAnswer | None:
    choice = menu.meaning(decision)
    at = None if choice is None else menu.choices.index(choice)
    if key := menu.keys.get(decision):
        return MenuAnswer(key, None if key == ESCAPE else at)
    may = menu.reads_keys and (menu.is_whole or decision in REFUSALS)
    if choice is None or choice.key or not may or menu.marked is None:
        return None
    return MenuAnswer("", at)


def is_filled_in(now: ScreenMenu, before: ScreenMenu, menu_answer: MenuAnswer) -> bool:
    """Whether *now* is the menu *before* with the typed text and the mark in place."""
    if now.marked != menu_answer.choice or len(now.choices) != len(before.choices):
        return False
    assert menu_answer.choice is not None
    expected = [choice.label for choice in before.choices]
    if menu_answer.label:
        if now.choices[menu_answer.choice].is_inline:  # still the agent's own hint, which looks like the text
            return False
        expected[menu_answer.choice] = menu_answer.label
    else:
        written = now.choices[menu_answer.choice].note if now.entry is None else now.entry
        if written != menu_answer.text:
            return False
    return _lines(now) == _lines(before) and expected == [choice.label for choice in now.choices]


def is_open(now: ScreenMenu, before: ScreenMenu, menu_answer: MenuAnswer) -> bool:
    """Whether *now* is the menu *before*, with the marked choice open for text."""
    if now.marked != menu_answer.choice or len(now.choices) != len(before.choices) or _lines(now) != _lines(before):
        return False
    assert menu_answer.choice is not None
    known = [choice.label for choice in before.choices]
    others = [choice.label for at, choice in enumerate(now.choices) if at != menu_answer.choice]
    was, is_now = before.choices[menu_answer.choice], now.choices[menu_answer.choice]
    opened = now.entry is not None or (was.label, was.note) != (is_now.label, is_now.note)
    return opened and others == [label for at, label in enumerate(known) if at != menu_answer.choice]


def is_toggled(before: ScreenMenu, at: int, now: ScreenMenu) -> bool:
    """Whether *now* is the menu *before* with choice *at* toggled."""

    def chosen(menu: ScreenMenu) -> list[tuple[str, bool | None]]:
        return [(choice.label, choice.is_on) for choice in menu.choices]

    expected = chosen(before)
    expected[at] = (expected[at][0], not expected[at][1])
    return _lines(now) == _lines(before) and expected == chosen(now)


def _lines(menu: ScreenMenu) -> list[str]:
    """Return the lines of the question, without the choices, and without marks of what is answered."""
    return [re.sub("[☐☑☒✓✔]", "☐", line) for line in menu.text.splitlines()[: -len(menu.choices)]]
