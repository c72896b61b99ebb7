"""A menu is known by its agent's file, with the key that each answer has now; nothing else is ever a menu."""

import pytest

from kasmon.model.permission import AskKind, Decision
from kasmon.screens.menu import Menu, menu, screen

MENU = """\
? wants to use Bash: git push
────────────
Bash git push
Do you want to proceed?
❯ 1. Yes
  2. Yes, and don't ask again for: Bash(git push:*)
  3. No
Enter sends · Esc interrupts"""


def seen(text: str) -> Menu | None:
    rules = screen("scripted")
    assert rules is not None
    return menu(text.split("\n"), rules)


def test_a_permission_has_a_key_for_each_answer() -> None:
    found = seen(MENU)

    assert found is not None
    assert AskKind.PERMISSION is found.kind
    assert {Decision.ALLOW: "1", Decision.ALWAYS: "2", Decision.DENY: "3"} == found.keys
    assert found.text.startswith("Bash git push\nDo you want to proceed?\n1. Yes\n")


def test_the_keys_are_read_from_the_menu_that_stands_there() -> None:
    found = seen(MENU.replace("1. Yes", "4. Yes").replace("3. No", "1. No").replace("4. Yes", "3. Yes"))

    assert found is not None
    assert ("3", "1") == (found.keys[Decision.ALLOW], found.keys[Decision.DENY])


def test_always_is_offered_only_where_the_menu_offers_it() -> None:
    found = seen("\n".join(line for line in MENU.split("\n") if "don't ask again" not in line))

    assert found is not None
    assert {Decision.ALLOW, Decision.DENY} == set(found.keys)


def test_a_label_may_go_on_in_the_next_row() -> None:
    found = seen(MENU.replace("for: Bash(git push:*)", "for:\n     Bash(git push:*)"))

    assert found is not None
    assert "don't ask again for: Bash(git push:*)" in found.text


@pytest.mark.parametrize(
    ("old", "new"), [("git push", "git pull"), ("1. Yes", "1. Yes, please"), ("❯ 1", "  1"), ("3. No", "3. No")]
)
def test_another_text_is_another_menu(old: str, new: str) -> None:
    before, after = seen(MENU), seen(MENU.replace(old, new))

    assert before is not None
    same = old == new or "❯" in old  # where the mark stands is no part of what is asked
    assert same == (after is not None and after.digest == before.digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Do you want to proceed?",
        "Do you want to proceed?\n  nothing to choose",
        "I asked: Do you want to proceed?\n❯ 1. Yes\n  2. No",
        "Do you want to proceed?\n\n❯ 1. Yes",
        "❯ 1. Yes\n  2. No",
        "Do you want to proceed?\n❯ 1. Perhaps",
    ],
)
def test_what_only_looks_like_one_is_none(text: str) -> None:
    assert seen(text) is None


def test_the_lowest_one_counts() -> None:
    found = seen(f"{MENU}\n{MENU.replace('git push', 'git pull')}")

    assert found is not None
    assert "git pull" in found.text


@pytest.mark.parametrize("program", ["vim", "../scripted", "", "a" * 99])
def test_for_other_programs_there_are_no_rules(program: str) -> None:
    assert screen(program) is None
