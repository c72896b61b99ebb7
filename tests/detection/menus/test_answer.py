"""Which keys an answer gets, from every golden screen on which something is asked; and which answers get none."""

import msgspec
import pytest

from kasmon.detection.menus.answer import (
    MenuAnswer,
    accepts_reason,
    decisions,
    find_free_text,
    is_filled_in,
    options,
    plan_keys,
)
from kasmon.detection.menus.choices import ESCAPE, ScreenMenu
from kasmon.detection.reader import read
from kasmon.detection.terminal_screen import captured
from kasmon.errors import RefusedError, UnableError
from kasmon.model.permission import Decision
from tests.support.detection.golden import FOLDER, cases, load, shipped_rules

ASKING = [case for case in cases() if "menu" in case.expected]


def menu_of(case: str, *changes: tuple[str, str]) -> ScreenMenu:
    """The menu on a golden screen, after *changes* of what the terminal was sent."""
    golden = load(FOLDER / case)
    facts, text = golden.shot.facts, golden.shot.text
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    shot = captured(
        text,
        golden.shot.title,
        cursor=tuple(facts["cursor"]) if "cursor" in facts else None,
        cursor_visible=facts.get("cursor_visible", True),
        alternate=facts.get("alternate", False),
        columns=facts.get("columns", 0),
    )
    rules = shipped_rules(golden.agent, golden.version)
    assert rules is not None
    menu = read(shot, rules).menu
    assert menu is not None
    return menu


def told(menu: ScreenMenu) -> dict[str, str]:
    """Each decision that it takes, with the key, or the choice that the mark is moved to."""
    ways = {decision: plan_keys(menu, decision) for decision in decisions(menu) if decision is not Decision.CHOOSE}
    return {
        str(decision): way.key or f"the mark on {menu.choices[way.choice or 0].label}" for decision, way in ways.items()
    }


@pytest.mark.parametrize(
    ("case", "keys"),
    [
        ("claude/2.1.332/permission-bash", {"allow": "1", "always": "2", "deny": "4", "cancel": ESCAPE}),
        ("claude/2.1.332/permission-edit", {"allow": "1", "always": "2", "deny": "3", "cancel": ESCAPE}),
        ("claude/2.1.332/permission-bash-amended", {"cancel": ESCAPE}),
        ("claude/2.1.332/plan", {"allow": "2", "deny": ESCAPE}),
        (
            "claude/2.1.332/start-trust",
            {"allow": "the mark on Yes, I trust this folder", "deny": "the mark on No, exit"},
        ),
        ("claude/2.1.197/permission-bash", {"allow": "1", "always": "2", "deny": "3", "cancel": ESCAPE}),
        ("codex/0.171.0/permission-exec", {"allow": "y", "always": "p", "deny": ESCAPE}),
        ("codex/0.171.0/plan", {"allow": "1", "deny": "3"}),
        ("gemini/0.61.0/permission-bash", {"allow": "1", "always": "2", "deny": "3", "cancel": ESCAPE}),
        (
            "opencode/1.18.33/permission-bash",
            {"allow": "the mark on Allow once", "always": "the mark on Allow always", "deny": ESCAPE},
        ),
        ("opencode/1.18.33/permission-bash-always", {"always": "the mark on Confirm", "deny": "the mark on Cancel"}),
        ("scripted/any/permission", {"allow": "1", "always": "2", "deny": "3"}),
    ],
)
def test_each_answer_has_the_key_shown_in_the_menu(case: str, keys: dict[str, str]) -> None:
    assert keys == told(menu_of(case))


UNANSWERED = {
    "claude/2.1.332/limit-week",
    "claude/2.1.332/model-picker",
    "codex/0.171.0/start-login",
    "gemini/0.61.0/model-picker",
    "gemini/0.61.0/start-login",
}
"""What nobody answers but by hand, at the terminal."""


@pytest.mark.parametrize("case", [case.id for case in ASKING])
def test_no_answer_takes_a_choice_whose_label_does_not_state_it(case: str) -> None:
    menu = menu_of(case)

    assert bool(decisions(menu)) is (case not in UNANSWERED)
    for decision in decisions(menu):
        if decision is Decision.CHOOSE:
            for option in options(menu):
                way = plan_keys(menu, decision, (option.label,))
                if menu.many:
                    assert way.selected == frozenset({menu.choices.index(option)})
                    continue
                assert menu.choices[way.choice or 0] is option or menu.choices[way.choice or 0] == option
            continue
        way = plan_keys(menu, decision)
        assert way.key == ESCAPE if way.choice is None else menu.choices[way.choice].decision is decision
        assert way.choice is None or not way.key or way.key == menu.choices[way.choice].key


@pytest.mark.parametrize("case", [case.id for case in ASKING])
def test_an_answer_that_the_menu_does_not_offer_has_no_key(case: str) -> None:
    menu = menu_of(case)

    for decision in set(Decision) - set(decisions(menu)):
        with pytest.raises(UnableError, match=r"no key|by one of its options"):
            plan_keys(menu, decision, ("red",))


def test_a_question_is_answered_by_one_of_its_options() -> None:
    menu = menu_of("claude/2.1.332/question")

    assert ["red", "blue"] == [option.label for option in options(menu)]
    assert MenuAnswer("2", 1) == plan_keys(menu, Decision.CHOOSE, ("blue",))
    for labels in ((), ("red", "blue")):
        with pytest.raises(UnableError):
            plan_keys(menu, Decision.CHOOSE, labels)
    with pytest.raises(RefusedError, match="green"):
        plan_keys(menu_of("claude/2.1.332/question-review"), Decision.CHOOSE, ("green",))


def test_free_text_is_typed_at_the_row_that_the_file_names_and_fits_one_row() -> None:
    menu = menu_of("claude/2.1.332/question")

    assert MenuAnswer("", 2, "green, or none", "", "green, or none") == plan_keys(
        menu, Decision.CHOOSE, (" green, or none",)
    )
    codex, opencode = menu_of("codex/0.171.0/question"), menu_of("opencode/1.18.33/question")
    assert MenuAnswer("", 2, "green", "\t") == plan_keys(codex, Decision.CHOOSE, ("green",))
    assert MenuAnswer("", 2, "green", "\r") == plan_keys(opencode, Decision.CHOOSE, ("green",))
    for words in (" ", "one\ntwo", "x" * 61, "\x1b[A\x1b[A\x1b"):
        with pytest.raises(UnableError):
            plan_keys(menu, Decision.CHOOSE, (words,))
    assert find_free_text(menu_of("claude/2.1.332/question-own-words")) is None


@pytest.mark.parametrize("agent", ["claude/2.1.332", "opencode/1.18.33"])
def test_a_multiple_choice_has_the_marked_choices_and_how_to_submit(agent: str) -> None:
    menu, chosen = menu_of(f"{agent}/question-many"), menu_of(f"{agent}/question-many-chosen")

    assert ["core", "docs"] == [option.label for option in options(menu)]
    assert [(False, False), (False, True)] == [tuple(one.is_on for one in options(each)) for each in (menu, chosen)]
    assert MenuAnswer("\t", None, selected=frozenset({0, 1})) == plan_keys(menu, Decision.CHOOSE, ("docs", "core"))
    assert menu.digest != chosen.digest
    with pytest.raises(RefusedError, match="tools"):
        plan_keys(menu, Decision.CHOOSE, ("docs", "tools"))
    with pytest.raises(UnableError):
        plan_keys(menu, Decision.CHOOSE, ())
    review = menu_of(f"{agent}/question-review")
    assert [1, 1] == [len(options(review)), len([one for one in review.choices if one.decision is Decision.CANCEL])]


def test_a_multiple_choice_without_a_known_submit_key_is_answered_in_its_terminal() -> None:
    assert () == options(msgspec.structs.replace(menu_of("claude/2.1.332/question-many"), then=""))


def test_a_denial_has_a_reason_only_if_the_menu_accepts_one() -> None:
    menu = menu_of("claude/2.1.332/permission-bash")

    assert accepts_reason(menu)
    why = MenuAnswer("", 3, "take b.txt", "\t", "No, take b.txt")
    assert why == plan_keys(menu, Decision.DENY, reason="take b.txt")
    for case in ("claude/2.1.332/permission-bash-why-not", "codex/0.171.0/permission-exec", "claude/2.1.332/question"):
        assert not accepts_reason(menu_of(case))
    for decision in (Decision.ALLOW, Decision.ALWAYS, Decision.CANCEL):
        with pytest.raises(UnableError, match="no reason"):
            plan_keys(menu, decision, reason="take b.txt")
    with pytest.raises(UnableError, match="no reason"):
        plan_keys(menu_of("codex/0.171.0/permission-exec"), Decision.DENY, reason="take b.txt")
    with pytest.raises(UnableError, match="one line"):
        plan_keys(menu, Decision.DENY, reason="one\ntwo")


def test_the_rows_of_a_request_are_those_of_its_choices_and_what_always_covers_is_said() -> None:
    golden = load(FOLDER / "claude/2.1.332/permission-bash")
    menu = menu_of(golden.id)
    rows = captured(golden.shot.text).rows[slice(*menu.rows)]
    assert "Bash command" in rows[0].text
    assert rows[-1].text.strip().startswith("4. No")

    assert "This will allow the following patterns until OpenCode is restarted - touch *" == (
        menu_of("opencode/1.18.33/permission-bash-always").covers
    )


# A field for own words, whose hint and whose draft differ in their colours alone


FIELD = "gemini/0.61.0/question-text"
HINT = "\x1b[7m\x1b[39ml\x1b[0m\x1b[38;5;248m\x1b[49mike main"


def test_an_empty_field_accepts_free_text_also_if_it_equals_its_hint() -> None:
    empty = menu_of(FIELD)

    assert (Decision.CHOOSE, Decision.CANCEL) == decisions(empty)
    for words in ("release", "like main"):
        assert MenuAnswer("", 0, words, "", words) == plan_keys(empty, Decision.CHOOSE, (words,))
    with pytest.raises(UnableError):
        plan_keys(empty, Decision.CHOOSE, ("two", "words"))


@pytest.mark.parametrize(
    "drawn",
    [
        "like main\x1b[7m \x1b[0m",  # typed, the cursor behind it
        "\x1b[7ml\x1b[0mike main",  # typed, the cursor on its first character
        "\x1b[7ml\x1b[0m\x1b[38;5;248mike mai\x1b[39mn",  # a part of it typed
        "\x1b[38;5;248mlike main\x1b[39m\x1b[7m \x1b[0m",  # faint, and the cursor is behind it
        "\x1b[7ml\x1b[0m",  # one character, of which nobody can tell
    ],
)
def test_a_field_that_may_have_a_draft_accepts_no_free_text(drawn: str) -> None:
    draft = menu_of(FIELD, (HINT, drawn))

    assert find_free_text(draft) is None
    assert (Decision.CANCEL,) == decisions(draft)
    assert menu_of(FIELD).digest != draft.digest
    with pytest.raises(UnableError):
        plan_keys(draft, Decision.CHOOSE, ("release",))
    assert (Decision.CANCEL,) == decisions(menu_of(f"{FIELD}-draft"))


def test_text_that_equals_the_hint_is_in_the_field_only_once_it_is_typed() -> None:
    empty = menu_of(FIELD)
    way = plan_keys(empty, Decision.CHOOSE, ("like main",))

    assert not is_filled_in(empty, empty, way)
    assert is_filled_in(menu_of(FIELD, (HINT, "like main\x1b[7m \x1b[0m")), empty, way)
    assert not is_filled_in(menu_of(f"{FIELD}-draft"), empty, way)
