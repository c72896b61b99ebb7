"""Marking the answers of a question: one or several, options and a person's own words."""

import pytest

from kasmon.model.permission import Request
from kasmon.tui.permissions.question_picks import QuestionPicks, labels, press_key, row_count, words, write_answer
from tests.support.sample_fleet import command, question

ONE, MANY = question("x", free_text=True), question("x", free_text=True, many=True)


def marked(asked: Request, *keys: str) -> list[int]:
    picks = QuestionPicks()
    for key in keys:
        picks, _ = press_key(asked, picks, key)
    return sorted(picks.picked)


@pytest.mark.parametrize(
    ("keys", "one", "many"),
    [
        (("2",), [1], [1]),
        (("2", "1"), [0], [0, 1]),
        (("down", "space"), [1], [1]),
        (("up", "up", "space"), [2], [2]),
        (("1", "1"), [0], []),
        (("option-2",), [2], [2]),
        (("9", "0", "x"), [], []),
    ],
)
def test_keys_mark_one_option_or_several(keys: tuple[str, ...], one: list[int], many: list[int]) -> None:
    assert one == marked(ONE, *keys)
    assert many == marked(MANY, *keys)


@pytest.mark.parametrize("keys", [("own_words",), ("4",), ("up", "space"), ("option-3",)])
def test_the_last_row_is_for_free_text(keys: tuple[str, ...]) -> None:
    picks, writes = QuestionPicks(), False
    for key in keys:
        picks, writes = press_key(ONE, picks, key)

    assert (True, 3) == (writes, picks.cursor)


def test_free_text_replaces_an_option_or_is_added_to_it() -> None:
    picks = QuestionPicks(picked=frozenset({1}))

    assert ((), "mine") == sent(ONE, write_answer(ONE, picks, "mine"))
    assert ((MANY.options[1],), "mine") == sent(MANY, write_answer(MANY, picks, "mine"))
    assert ((MANY.options[1],), "") == sent(MANY, write_answer(MANY, write_answer(MANY, picks, "mine"), ""))


def sent(request: Request, picks: QuestionPicks) -> tuple[tuple[str, ...], str]:
    return labels(request, picks), words(request, picks)


def test_a_request_without_a_question_has_nothing_to_mark() -> None:
    assert (4, 3, 1, 0) == (
        row_count(ONE),
        row_count(question("x")),
        row_count(question("x", options=())),
        row_count(command("x", "ls")),
    )
    assert [] == marked(command("x", "ls"), "1", "space", "own_words")
