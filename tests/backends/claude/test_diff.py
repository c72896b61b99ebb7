"""What a tool did, or wants to do, as a unified diff."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.backends.claude.diff import diff_of_result, wanted
from kasmon.backends.common.diff import COMPARED

LINES = st.lists(st.text(alphabet="ab \r", max_size=3), max_size=12)


def applied(before: str, diff: str) -> list[str]:
    """*before* after *diff*, as `patch` would."""
    old, new, at = before.split("\n"), list[str](), 0
    if before.endswith("\n") or not before:
        old.pop()
    for row in diff.split("\n")[2:]:
        if row.startswith("@@"):
            start, _, taken = row.split(" ")[1].removeprefix("-").partition(",")
            first = int(start) - (1 if int(taken) else 0)
            new += old[at:first]
            at = first
        elif row[:1] == "+":
            new.append(row[1:])
        else:
            assert old[at] == row[1:]
            at += 1
            if row[:1] == " ":
                new.append(row[1:])
    return new + old[at:]


@given(LINES, LINES)
def test_a_diff_turns_the_one_text_into_the_other(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    diff = wanted("Write", {"file_path": "f", "content": after}, before)

    assert new == (applied(before, diff) if diff else old)


def test_it_shows_three_lines_around_a_change_and_where_it_is() -> None:
    before = "".join(f"{n}\n" for n in range(1, 101))
    diff = wanted("Edit", {"file_path": "f", "old_string": "50\n", "new_string": "fifty\n"}, before)

    assert "@@ -47,7 +47,7 @@\n 47\n 48\n 49\n-50\n+fifty\n 51\n 52\n 53" in diff


def test_all_places_are_replaced_where_the_agent_says_so_and_several_edits_are_one_diff() -> None:
    edit = {"file_path": "f", "old_string": "a", "new_string": "b"}
    assert 1 == wanted("Edit", edit, "a\na\n").count("+b")
    assert 2 == wanted("Edit", {**edit, "replace_all": True}, "a\na\n").count("+b")

    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "c"}]
    assert "-a\n+c" in wanted("MultiEdit", {"file_path": "f", "edits": edits}, "a\n")


@pytest.mark.parametrize("before", [None, "something else"], ids=["unread", "other"])
def test_an_edit_that_does_not_fit_still_shows_its_two_texts(before: str | None) -> None:
    assert "-old\n+new" in wanted("Edit", {"file_path": "f", "old_string": "old", "new_string": "new"}, before)


@pytest.mark.parametrize(("tool", "asked"), [("Bash", {"command": "rm f"}), ("Edit", {}), ("Edit", {"file_path": 7})])
def test_a_tool_that_changes_no_file_has_no_diff(tool: str, asked: dict[str, object]) -> None:
    assert "" == wanted(tool, asked, "text")


def test_large_texts_are_not_compared_line_by_line() -> None:
    half = int(COMPARED**0.5) + 10
    before, after = ("".join(f"{word}{n}\n" for n in range(half)) for word in ("old", "new"))

    assert f"@@ -1,{half} +1,{half} @@" in wanted("Write", {"file_path": "f", "content": after}, before)


def test_a_path_cannot_add_lines_and_what_was_done_is_told_by_the_agents_own_patch() -> None:
    assert "+++ f +++ g" in wanted("Write", {"file_path": "f\n+++ g", "content": "x\n"}, "").split("\n")

    hunk = {"oldStart": 3, "oldLines": 1, "newStart": 3, "newLines": 1, "lines": ["-a", "+b"]}
    assert "--- f\n+++ f\n@@ -3,1 +3,1 @@\n-a\n+b" == diff_of_result({"filePath": "f", "structuredPatch": [hunk]})


@pytest.mark.parametrize("result", [{}, {"filePath": "f"}, {"structuredPatch": [7]}, {"filePath": 1, "type": "create"}])
def test_a_result_without_a_patch_has_no_diff(result: dict[str, object]) -> None:
    assert "" == diff_of_result(result)
