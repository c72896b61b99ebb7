"""A file's diff as rows, in one column and in two."""

import pytest

from kasmon.model.review.file_changes import FileChange
from kasmon.model.review.hunks import parse
from kasmon.model.review.line_pairs import LinePairs
from kasmon.tui.review.diff_rows import DiffRows, LineColours, ShownComment
from tests.model.review.test_file_changes import of


def rows_of(change: FileChange, width: int = 60, *, two_columns: bool = True, **given: object) -> DiffRows:
    file = parse(change.lines)
    return DiffRows(file, LineColours(file, change.name), LinePairs(file), width, two_columns=two_columns, **given)  # type: ignore[arg-type]


def texts(change: FileChange, width: int = 60, *, two_columns: bool = True) -> list[str]:
    rows = rows_of(change, width, two_columns=two_columns)
    return ["".join(piece.text for piece in rows.row(number)).rstrip() for number in range(rows.count)]


def test_both_sides_stand_beside_each_other_with_their_own_numbers_and_empty_for_missing_lines() -> None:
    assert " 2 -old line                 │  2 +new line" in texts(of("src/x.py"))
    assert "                             │  3 +another" in texts(of("src/x.py"))
    assert "10 -gone                     │" in texts(of("src/x.py"))
    assert " 3  kept                     │  4  kept" in texts(of("src/x.py"))
    assert "11  tail                     │ 11  tail" in texts(of("src/x.py"))


def test_no_row_is_wider_than_the_window() -> None:
    long = FileChange("x", ("@@ -1 +1 @@", "-" + "a" * 300, "+" + "字" * 100))

    assert all(len(row) <= 61 for row in texts(long, 61))


def test_in_one_column_it_reads_as_a_diff_and_without_lines_says_why() -> None:
    rows = texts(of("src/x.py"), two_columns=False)
    assert ["   @@ -1,3 +1,4 @@ def f():", " 1  same", " 2 -old line", " 2 +new line"] == rows[:4]

    assert ["Binary files a/p.png and b/p.png differ"] == texts(of("p.png"))
    assert ["It is empty."] == texts(of("empty"))


def test_each_row_is_counted_before_it_is_rendered() -> None:
    lines = ["-" + "a\tb" * 40, "+" + "wide 字" * 30, "+", "+" + "x" * 120, "\\ No newline at end of file"]
    change = FileChange("x.py", ("@@ -1 +1,3 @@", *lines))
    for width in (40, 61, 140):
        for two in (False, True):
            rows = rows_of(change, width, two_columns=two, comments={2: (ShownComment(id="c1", text="why? " * 30),)})

            assert [len(list(rows._draw(entry))) for entry in rows.entries] == [
                end - start for start, end in zip(rows.starts, rows.starts[1:], strict=False)
            ]


def test_changed_words_syntax_and_search_are_marked() -> None:
    change = FileChange("x.py", ("@@ -1 +1 @@", "-return total(rows, 3)", "+return total(rows, limit)"))
    rows = rows_of(change, two_columns=False, query="TOTAL")
    rows._colours.load()
    drawn = {piece.text: piece for number in (1, 2) for piece in rows.row(number)}

    assert "removed-words" == drawn["3"].ground
    assert ("text.bold.underline", "added-words") == drawn["limit"][1:]
    assert "says-heading" == drawn["return"].role
    assert "accent.solid.bold" == drawn["total"].role


def test_a_folded_hunk_is_its_header_and_the_number_of_its_lines() -> None:
    rows = rows_of(of("src/x.py"), two_columns=False, folded=frozenset({0}), unfold_key="⏎")

    assert "@@ -1,3 +1,4 @@ def f():  5 lines folded · ⏎ unfolds" in "".join(piece.text for piece in rows.row(0))
    assert 4 == rows.count


@pytest.mark.parametrize("two_columns", [False, True])
def test_the_beginning_of_a_very_long_line_is_shown(two_columns: bool) -> None:
    change = FileChange("a.js", ("@@ -1 +1 @@", f"-{'x=1;' * 5000}", f"+{'y=1;' * 5000}"))
    rows = rows_of(change, 100, two_columns=two_columns)
    shown = ["".join(piece.text for piece in rows.row(number)).rstrip() for number in range(rows.count)]

    assert rows.count < 250
    assert shown[-1].endswith("… 10,000 more characters")
    assert all(shown)
