"""Which added line of a diff replaced which removed one, also between inserted and removed lines; and changed words."""

from kasmon.model.review import line_pairs
from kasmon.model.review.hunks import parse
from kasmon.model.review.line_pairs import LinePairs, align, compare_words
from tests.model.review.test_file_changes import of


def test_a_removed_line_is_paired_with_its_replacement_and_similar_ones_across_others() -> None:
    pairs = LinePairs(parse(of("src/x.py").lines))
    assert ((1, 1), (2, 3), (None, 4), (5, 5)) == pairs.in_hunk(0)
    assert [3, 2, None, None] == [pairs.partner(line) for line in (2, 3, 4, 5)]

    old = ["def total(rows):", "    # sums them", "    return sum(rows)"]
    new = ["", "@cached", "def total(rows, limit):", "    return sum(rows[:limit])", "    # end"]
    assert [(None, 0), (None, 1), (0, 2), (1, None), (2, 3), (None, 4)] == list(align(old, new))
    assert [(0, 0), (1, None)] == list(align(["alpha", "beta"], ["gamma"]))


def test_equal_lines_are_paired_in_blocks_too_long_to_compare_each_with_each() -> None:
    """An indented block of 5,000 lines, with a line before it and one within it; blank lines and `}` are not unique."""
    old = [text for at in range(2500) for text in (f"call_{at}()", "}" if at % 2 else "")]
    new = ["if ready:", *(f"    {line}" for line in old)]
    new.insert(2000, "    inserted()")
    pairs = list(align(old, new))

    assert (None, 0) == pairs[0]
    assert all(old[one] == new[other].strip() for one, other in pairs if one is not None and other is not None)
    assert list(range(len(old))) == [one for one, _ in pairs if one is not None]
    assert list(range(len(new))) == [other for _, other in pairs if other is not None]


def test_the_number_of_compared_lines_is_limited() -> None:
    """Longer blocks without equal lines are paired by their order."""
    count = line_pairs.MOST_COMPARED // 2
    old, new = [f"old {at}" for at in range(count)], [f"new {at}" for at in range(count)]

    assert [(at, at) for at in range(count)] == list(align(old, new))


def test_only_changed_words_are_marked_and_none_where_the_lines_have_little_in_common() -> None:
    old, new = compare_words("return total(rows, 3)", "return total(rows, limit)")

    assert (((19, 20),), ((19, 24),)) == (old, new)
    assert ((), ()) == compare_words("import os", "class Widget(Base):")
    assert ((), ()) == compare_words("a " * 400, "b " * 400)
