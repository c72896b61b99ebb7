"""Which worktrees change the same file, and which the same lines, by their diffs alone."""

from kasmon.model.collisions import WHOLE, FileCollision, WorktreeChanges, describe, find_collisions, parse_changes

BASE = "c0ffee"


def diff(file: str, *hunks: str) -> str:
    head = f"diff --git {file} {file}\nindex 1..2 100644\n--- {file}\n+++ {file}\n"
    return head + "".join(f"{hunk}\n" for hunk in hunks)


def test_a_changed_line_is_known_by_its_place_in_the_base_and_an_added_one_by_both_beside_it() -> None:
    assert {"a.py": ((7, 8),)} == parse_changes(BASE, diff("a.py", "@@ -7 +7 @@ def f():", "-old", "+new")).files
    assert {"a.py": ((7, 9),)} == parse_changes(BASE, diff("a.py", "@@ -7,0 +8,2 @@", "+new", "+lines")).files


def test_changed_lines_that_look_like_a_header_are_lines_and_a_path_may_have_a_blank() -> None:
    shown = diff(
        "a.sql", "@@ -3,2 +3,2 @@", "--- drop it", "--- twice", "+++ keep it", "+++ twice", "@@ -9 +9 @@", "-x", "+y"
    )
    assert {"a.sql": ((3, 5), (9, 10))} == parse_changes(BASE, shown).files

    assert {"my file": ((1, 2),)} == parse_changes(BASE, diff("my file\t", "@@ -1 +1 @@", "-a", "+b")).files


def test_a_new_a_deleted_and_a_binary_file_count_whole() -> None:
    shown = (
        "diff --git n n\nnew file mode 100644\n--- /dev/null\n+++ n\n@@ -0,0 +1 @@\n+x\n"
        "diff --git d d\ndeleted file mode 100644\n--- d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git p.png p.png\nBinary files p.png and p.png differ\n"
    )

    assert {"n": WHOLE, "d": WHOLE, "p.png": WHOLE, "u": WHOLE} == parse_changes(BASE, shown, ("u",)).files


def test_two_sessions_that_change_one_file_are_reported_to_each_other() -> None:
    trees = {
        "one": WorktreeChanges(BASE, {"a": ((1, 2),)}),
        "two": WorktreeChanges(BASE, {"a": ((5, 6),), "b": ((1, 2),)}),
    }

    assert {"one": (FileCollision("two", "a", False),), "two": (FileCollision("one", "a", False),)} == find_collisions(
        trees
    )


def test_lines_that_meet_are_the_same_lines_unless_they_are_of_another_base() -> None:
    trees = {"one": WorktreeChanges(BASE, {"a": ((1, 6),)}), "two": WorktreeChanges(BASE, {"a": ((5, 6),)})}
    assert (FileCollision("two", "a", True),) == find_collisions(trees)["one"]

    trees = {"one": WorktreeChanges(BASE, {"a": ((1, 6),)}), "two": WorktreeChanges("other", {"a": ((5, 6),)})}
    assert (FileCollision("two", "a", False),) == find_collisions(trees)["one"]


def test_a_worktree_that_nobody_meets_is_left_out_and_a_meeting_is_said_in_words() -> None:
    assert {} == find_collisions(
        {
            "one": WorktreeChanges(BASE, {"a": WHOLE}),
            "two": WorktreeChanges(BASE, {"b": WHOLE}),
            "three": WorktreeChanges(),
        }
    )

    assert "api changes the same lines of a.py too" == describe(FileCollision("x", "a.py", True), "api")
    assert "api changes a.py too" == describe(FileCollision("x", "a.py", False), "api")
