"""How an answer is given to the menu on a screen: which choice is taken, and by which key; or why not. Pure.

A key is what the label has now. Where a label has none, the mark is moved to it and Enter takes it; that is never done
to a choice whose label does not say that it means the answer.
"""

from typing import Final, NamedTuple

from kasmon.clean import outgoing
from kasmon.errors import RefusedError, UnableError
from kasmon.model.permission import Decision
from kasmon.screens.choice import ESCAPE, REFUSALS, Choice, Menu

TAKEN: Final = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.CANCEL)
"""What a menu may take beside choosing, in the order in which it is shown."""


LONGEST_WORDS: Final = 60
"""So many bytes of own words are typed: they must stand in one row, to be seen there before Enter."""


class Course(NamedTuple):
    """How one answer is given."""

    key: str
    """What is typed; empty where the mark has to be moved to the choice, which Enter then takes."""
    choice: int | None
    """Which of the choices is taken, from 0; None where Escape answers."""
    words: str = ""
    """What is typed into the choice before Enter."""


def taken(menu: Menu) -> tuple[Decision, ...]:
    """The decisions that *menu* takes, `CHOOSE` for one of its options first."""
    choosing = (Decision.CHOOSE,) if options(menu) else ()
    return (*choosing, *(decision for decision in TAKEN if _course(menu, decision) is not None))


def options(menu: Menu) -> tuple[Choice, ...]:
    """The choices that a question offers; none where one alone does not answer it, or not all of it is shown."""
    if menu.many or not (menu.hears and menu.is_whole):
        return ()
    offered = [choice for choice in menu.choices if choice.decision is Decision.CHOOSE]
    labels = [choice.label for choice in menu.choices]
    return tuple(choice for choice in offered if labels.count(choice.label) == 1)


def own_words(menu: Menu) -> Choice | None:
    """The choice that takes a person's own words, where the menu's file says how."""
    takes = [choice for choice in menu.choices if choice.words]
    return takes[0] if len(takes) == 1 and options(menu) else None


def course(menu: Menu, decision: Decision, labels: tuple[str, ...] = ()) -> Course:
    """How *decision* is told to *menu*, and which of its options where that is `CHOOSE`.

    Raises:
        UnableError: if nobody knows how.
        RefusedError: if there is no such option.
    """
    if decision is Decision.CHOOSE:
        return _chosen(menu, labels)
    found = _course(menu, decision)
    if found is None:
        raise UnableError(f"no key of the menu that stands there says {decision!s}.", hint="Focus the session.")
    return found


def _chosen(menu: Menu, labels: tuple[str, ...]) -> Course:
    offered = options(menu)
    if len(labels) != 1 or not offered:
        raise UnableError("this menu is not answered by one of its options.", hint="Focus the session.")
    choice = next((choice for choice in offered if choice.label == labels[0]), None)
    if choice is None and (own := own_words(menu)) is not None:
        return Course("", menu.choices.index(own), _typed(labels[0]))
    if choice is None:
        offers = ", ".join(choice.label for choice in offered)
        raise RefusedError(f"the menu has no option {labels[0]!r}.", hint=f"Options: {offers}.")
    return Course(choice.key, menu.choices.index(choice))


def _typed(words: str) -> str:
    """*words* as they can be typed into a row.

    Raises:
        UnableError: if they cannot.
    """
    typed = outgoing(words).strip()
    if not typed or "\n" in typed or "\t" in typed or len(typed.encode()) > LONGEST_WORDS:
        raise UnableError(
            f"own words are one line of at most {LONGEST_WORDS} bytes here.", hint="Focus the session to write more."
        )
    return typed


def _course(menu: Menu, decision: Decision) -> Course | None:
    choice = menu.meaning(decision)
    at = None if choice is None else menu.choices.index(choice)
    if key := menu.keys.get(decision):
        return Course(key, None if key == ESCAPE else at)
    may = menu.hears and (menu.is_whole or decision in REFUSALS)
    if choice is None or choice.key or not may or menu.steps(choice) is None:
        return None
    return Course("", at)
