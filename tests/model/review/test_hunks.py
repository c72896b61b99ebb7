"""The lines of a file's diff: their numbers and their hunks; the files as a tree."""

from kasmon.model.review.file_changes import FileChange
from kasmon.model.review.file_tree import build_tree
from kasmon.model.review.hunks import list_changes, parse
from tests.model.review.test_file_changes import of

FILE = parse(of("src/x.py").lines)


def test_each_line_has_its_numbers_in_both_files_and_belongs_to_the_hunk_that_has_it() -> None:
    numbers = [(line.old, line.new) for line in FILE.lines]
    assert [(0, 0), (1, 1), (2, 0), (0, 2), (0, 3), (3, 4), (0, 0), (10, 0), (11, 11)] == numbers

    assert [(0, 6), (6, 9)] == [(hunk.start, hunk.end) for hunk in FILE.hunks]
    assert [2, 7] == list_changes(FILE)
    assert [0, 0, 1, 1] == [FILE.hunk_at(line) for line in (0, 5, 6, 8)]


def test_files_are_a_tree_with_the_sums_of_each_folder() -> None:
    names = ("src/tui/a.py", "docs/x.md", "src/tui/b.py", "src/z.py", "README")
    files = [FileChange(name, (), added=1, removed=2) for name in names]
    rows = [("  " * row.depth + row.label, row.added, row.file) for row in build_tree(files)]

    assert [
        ("docs/x.md", 1, 1),
        ("src/", 3, None),
        ("  tui/", 2, None),
        ("    a.py", 1, 0),
        ("    b.py", 1, 2),
        ("  z.py", 1, 3),
        ("README", 1, 4),
    ] == rows
