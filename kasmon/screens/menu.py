"""The menu on a terminal agent's screen: found by the rules of its file, with the key of each answer.

A key is only ever known from the menu that stands there now: which digit means yes changes between versions of an
agent. Whoever presses one looks again first, and presses it only where `Menu.digest` is still the same.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from kasmon.model.permission import AskKind, Decision

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class MenuRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one kind of menu is known, and what its choices mean."""

    kind: AskKind
    title: str
    """A pattern for the row above the choices."""
    above: int = 1
    """How many rows above the title belong to what is asked."""
    choice: str
    """A pattern for a choice's first row, with the groups `key` and `label`."""
    answers: dict[Decision, str]
    """What an answer's label looks like."""


class Screen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One agent's file."""

    program: str
    menu: tuple[MenuRule, ...] = ()


class Menu(NamedTuple):
    """A menu that stands on a screen."""

    kind: AskKind
    text: str
    """What is asked, with the choices, as it stands there."""
    keys: Mapping[Decision, str]
    """The key of each answer that it offers."""
    digest: str
    """SHA-256 of `text`: another text is another menu."""


@cache
def screen(program: str) -> Screen | None:
    """The rules for *program*; None if there are none."""
    if not NAME.fullmatch(program):
        return None
    try:
        text = (files(__name__.rpartition(".")[0]) / f"{program}.toml").read_text("utf-8")
    except FileNotFoundError:
        return None
    return msgspec.convert(tomllib.loads(text), Screen)


def menu(rows: Sequence[str], rules: Screen) -> Menu | None:
    """The lowest menu on *rows*, a screen without styles; None if there is none, or nothing of it can be answered."""
    for at in reversed(range(len(rows))):
        for rule in rules.menu:
            if re.search(rule.title, rows[at]) and (found := _menu(rows, at, rule)) is not None:
                return found
    return None


def _menu(rows: Sequence[str], at: int, rule: MenuRule) -> Menu | None:
    labels = dict(_choices(rows[at + 1 :], rule.choice))
    keys = {
        decision: key
        for decision, pattern in rule.answers.items()
        for key, label in labels.items()
        if re.search(pattern, label)
    }
    if not keys:
        return None
    asked = [*rows[max(0, at - rule.above) : at + 1], *(f"{key}. {label}" for key, label in labels.items())]
    text = "\n".join(row.strip() for row in asked)
    return Menu(rule.kind, text, keys, hashlib.sha256(text.encode()).hexdigest())


def _choices(rows: Sequence[str], pattern: str) -> Iterator[tuple[str, str]]:
    """The choices right below a title, by their key; a row that begins none goes on with the one before."""
    key, label = "", ""
    for row in rows:
        match = re.search(pattern, row)
        if match is not None:
            if key:
                yield key, label
            key, label = match["key"], match["label"].strip()
        elif key and row.strip() and row.startswith("   "):
            label = f"{label} {row.strip()}"
        else:
            break
    if key:
        yield key, label
