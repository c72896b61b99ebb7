"""A whole diff by its files."""

from kasmon.model.review.file_changes import FileChange, split

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


def test_each_file_is_listed_with_its_change_and_its_lines() -> None:
    told = [(file.name, file.added, file.removed, file.kind) for file in split(DIFF)]

    assert [
        ("src/x.py", 2, 2, ""),
        ("n", 1, 0, "new"),
        ("gone", 0, 1, "deleted"),
        ("p.png", 0, 0, ""),
        ("empty", 0, 0, "new"),
    ] == told


def test_where_there_are_no_lines_it_says_why_and_nothing_is_no_file() -> None:
    assert ("Binary files a/p.png and b/p.png differ",) == of("p.png").lines
    assert ("It is empty.",) == of("empty").lines
    assert not of("p.png").has_hunks

    assert () == split("")


def test_a_rename_has_both_names_and_a_mode_both_modes() -> None:
    modes = "old mode 100644\nnew mode 100755\n"
    whole = f"diff --git a/old b/new\n{modes}similarity index 100%\nrename from old\nrename to new"
    (file,) = split(whole)

    assert ("new", "old", ("100644", "100755")) == (file.name, file.old_name, file.modes)


def test_names_that_git_quotes_are_read_also_with_what_separates_names() -> None:
    whole = 'diff --git "a/tab\\there" "b/tab\\there"\n--- "a/tab\\there"\n+++ "b/tab\\there"\n@@ -1 +1 @@\n-a\n+b\n'
    mode = 'diff --git "a/\\303\\274 \\"x" "b/\\303\\274 \\"x"\nold mode 100644\nnew mode 100755\n'
    assert ["tab\there", 'ü "x'] == [file.name for file in split(whole + mode)]

    (change,) = split("diff --git a/x b/x b b/x b/x b\nnew file mode 100644\n")
    assert "x b/x b" == change.name
