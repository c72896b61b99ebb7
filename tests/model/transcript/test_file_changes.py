"""A whole diff by its files, in one column and in two."""

from kasmon.model.transcript.file_changes import FileChange, beside, split, unified

DIFF = """diff --git a/src/x.py b/src/x.py
index 1..2 100644
--- a/src/x.py
+++ b/src/x.py
@@ -1,3 +1,4 @@ def f():
 same
-old line
+new line
+another
 kept
@@ -10,2 +11,1 @@
-gone
 tail
diff --git a/n b/n
new file mode 100644
index 0000000..1
--- /dev/null
+++ b/n
@@ -0,0 +1 @@
+hello
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/p.png b/p.png
index 1..2 100644
Binary files a/p.png and b/p.png differ
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
"""


def of(name: str) -> FileChange:
    return next(file for file in split(DIFF) if file.name == name)


def texts(change: FileChange, width: int = 60) -> list[str]:
    return [line.text.rstrip() for line in beside(change, width)]


def test_each_file_is_told_with_what_happens_to_it_and_its_lines() -> None:
    told = [(file.name, file.added, file.removed, file.kind) for file in split(DIFF)]

    assert [
        ("src/x.py", 2, 2, ""),
        ("n", 1, 0, "new"),
        ("gone", 0, 1, "deleted"),
        ("p.png", 0, 0, ""),
        ("empty", 0, 0, "new"),
    ] == told


def test_what_was_taken_out_stands_beside_what_came_in_its_place() -> None:
    assert " 2 -old line                 │  2 +new line" in texts(of("src/x.py"))


def test_a_line_that_only_one_side_has_leaves_the_other_empty() -> None:
    assert "                             │  3 +another" in texts(of("src/x.py"))
    assert "10 -gone                     │" in texts(of("src/x.py"))


def test_both_sides_count_their_own_lines() -> None:
    assert " 3  kept                     │  4  kept" in texts(of("src/x.py"))
    assert "11  tail                     │ 11  tail" in texts(of("src/x.py"))


def test_no_row_is_wider_than_there_is_room() -> None:
    long = FileChange("x", ("@@ -1 +1 @@", "-" + "a" * 300, "+" + "字" * 100))

    assert all(len(row) <= 61 for row in texts(long, 61))


def test_in_one_column_it_reads_as_a_diff() -> None:
    rows = [line.text for line in unified(of("src/x.py"), 60)]

    assert ["   @@ -1,3 +1,4 @@ def f():", " 1  same", " 2 -old line", " 2 +new line"] == rows[:4]


def test_where_there_are_no_lines_it_says_why() -> None:
    assert ["Binary files a/p.png and b/p.png differ"] == texts(of("p.png"))
    assert ["It is empty."] == texts(of("empty"))


def test_nothing_is_no_file() -> None:
    assert () == split("")
