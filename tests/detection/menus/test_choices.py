"""A menu is known by its agent's file, with the key that each answer has now; nothing else is ever a menu."""

import pytest

from kasmon.detection.menus.choices import ScreenMenu
from kasmon.detection.reader import menu
from kasmon.model.permission import Decision, RequestKind
from tests.support.detection.golden import FOLDER, load, shipped_rules

MENU = """\
? wants to use Bash: git push
────────────
Bash git push
Do you want to proceed?
❯ 1. Yes
  2. Yes, and don't ask again for: Bash(git push:*)
  3. No
Enter sends · Esc interrupts"""


def seen(text: str) -> ScreenMenu | None:
    rules = shipped_rules("scripted")
    assert rules is not None
    return menu(text.split("\n"), rules)


def test_a_permission_has_a_key_for_each_answer_as_its_menu_stands_there() -> None:
    found = seen(MENU)
    assert found is not None
    assert RequestKind.PERMISSION is found.kind
    assert {Decision.ALLOW: "1", Decision.ALWAYS: "2", Decision.DENY: "3"} == found.keys
    assert found.text.startswith("Bash git push\nDo you want to proceed?\n1. Yes\n")

    found = seen(MENU.replace("1. Yes\n", "1. No\n").replace("3. No", "3. Yes"))
    assert found is not None
    assert ("3", "1") == (found.keys[Decision.ALLOW], found.keys[Decision.DENY])


@pytest.mark.parametrize("numbers", [("4", "2", "1"), ("2", "3", "4"), ("1", "3", "4"), ("1", "1", "2")])
def test_choices_that_are_not_numbered_in_order_are_no_menu(numbers: tuple[str, str, str]) -> None:
    """A label that goes on in the next row may look like a choice."""
    text = MENU
    for before, after in zip(("1. Yes\n", "2. Yes,", "3. No"), numbers, strict=True):
        text = text.replace(before, f"{after}{before[1:]}")

    assert seen(text) is None


def test_an_answer_that_two_labels_match_has_no_key() -> None:
    found = seen(MENU.replace("3. No", "3. Yes").replace("❯ 1", "  1").replace("  2", "❯ 2"))

    assert found is not None
    assert {Decision.ALWAYS} == set(found.keys)


def test_a_label_that_nobody_knows_is_shown_and_never_pressed_nor_any_key_while_the_mark_is_there() -> None:
    """The third choice was "No" and became "switch to auto mode" one version later.

    Somebody may be writing into that choice, and a digit would be text.
    """
    found = seen(MENU.replace("3. No", "3. Yes, and switch to auto mode\n  4. No"))
    assert found is not None
    assert {Decision.ALLOW: "1", Decision.ALWAYS: "2", Decision.DENY: "4"} == found.keys
    assert (None, "Yes, and switch to auto mode") == (found.choices[2].decision, found.choices[2].label)

    assert seen(MENU.replace("1. Yes\n", "1. Yes, and use tabs\n")) is None


def test_always_is_offered_only_where_the_menu_offers_it_and_a_label_may_go_on_below() -> None:
    found = seen("\n".join(line for line in MENU.replace("3. No", "2. No").split("\n") if "don't" not in line))
    assert found is not None
    assert {Decision.ALLOW, Decision.DENY} == set(found.keys)

    found = seen(MENU.replace("for: Bash(git push:*)", "for:\n     Bash(git push:*)"))
    assert found is not None
    assert "don't ask again for: Bash(git push:*)" in found.text


@pytest.mark.parametrize(
    ("old", "new"), [("git push", "git pull"), ("Bash git", "Edit git"), ("3. No", "3. Yes, but"), ("git push", "")]
)
def test_another_text_is_another_menu(old: str, new: str) -> None:
    before, after = seen(MENU), seen(MENU.replace(old, new))

    assert before is not None
    assert after is not None
    assert before.digest != after.digest


def test_another_key_of_the_same_label_is_another_menu() -> None:
    golden = load(FOLDER / "codex/0.171.0/permission-exec").shot
    rules = shipped_rules("codex")
    assert rules is not None
    before, after = (menu(text.split("\n"), rules) for text in (golden.text, golden.text.replace("(y)", "(n)")))

    assert before is not None
    assert after is not None
    assert ("y", "n") == (before.keys[Decision.ALLOW], after.keys[Decision.ALLOW])
    assert before.digest != after.digest


def test_the_position_of_the_mark_is_not_part_of_the_request() -> None:
    before, after = seen(MENU), seen(MENU.replace("❯ 1", "  1").replace("  3", "❯ 3"))

    assert before is not None
    assert after is not None
    assert before.digest == after.digest
    assert (0, 2) == (before.marked, after.marked)


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
        MENU.replace("❯ 1", "  1"),
        MENU.replace("  2", "❯ 2"),
        MENU.replace("\nEnter sends · Esc interrupts", ""),
    ],
)
def test_text_that_resembles_a_menu_is_none(text: str) -> None:
    assert seen(text) is None


def test_the_lowest_one_counts() -> None:
    found = seen(f"{MENU}\n{MENU.replace('git push', 'git pull')}")

    assert found is not None
    assert "git pull" in found.text


@pytest.mark.parametrize("program", ["vim", "../scripted", "", "a" * 99])
def test_for_other_programs_there_are_no_rules(program: str) -> None:
    assert shipped_rules(program) is None
