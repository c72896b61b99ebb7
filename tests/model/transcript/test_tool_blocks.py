"""A tool call as rows: a command on one line, a result by the kind of its tool, one diff for each change."""

import pytest

from kasmon.model.events import (
    Event,
    MessageWritten,
    RequestAnswered,
    RequestOpened,
    ToolFinished,
    ToolStarted,
)
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.transcript.layout import Transcript

WIDTH = 60


def transcript(*events: Event) -> Transcript:
    whole = Transcript()
    for event in events:
        whole.add(event)
    return whole


def shown(whole: Transcript) -> list[str]:
    return [row.text.rstrip() for row in whole.lines(WIDTH)]


def used(tool: str, title: str = "x", **result: object) -> Transcript:
    finished = ToolFinished(at=0, call="c", **result)  # type: ignore[arg-type]
    return transcript(ToolStarted(at=0, call="c", tool=tool, title=title), finished, MessageWritten(at=0, text="end"))


def test_a_long_command_is_on_one_line_until_it_is_opened() -> None:
    command = "find . -name '*.py' -newer setup.py\n | xargs grep -l 'import os' | sort | head -n 20"
    whole = used("Bash", command, output="a.py")

    assert ["● Bash find . -name '*.py' -newer setup.py  | xargs grep … ✓", "  ⎿ a.py"] == shown(whole)[:2]
    assert len(shown(whole)[0]) <= WIDTH
    assert whole.toggle(0)
    opened = " ".join(row.strip() for row in shown(whole))
    assert "head -n 20" in opened
    assert "▴ collapse" in opened


OUTPUT = "\n".join(f"line {number}" for number in range(40))


@pytest.mark.parametrize(
    ("tool", "head", "lines", "more"),
    [
        ("Bash", "● Bash x ✓", 12, "… 28 more lines"),
        ("Grep", "● Grep x ✓ · 40 lines", 6, "… 34 more lines"),
        ("search", "● search x ✓ · 40 lines", 6, "… 34 more lines"),
        ("Read", "● Read x ✓", 0, "… 40 lines"),
        ("WebFetch", "● WebFetch x ✓", 6, "… 34 more lines"),
        ("mcp__db__query", "● mcp__db__query x ✓", 12, "… 28 more lines"),
    ],
)
def test_a_result_is_folded_by_the_kind_of_its_tool_with_a_count(tool: str, head: str, lines: int, more: str) -> None:
    whole = used(tool, output=OUTPUT)
    rows = shown(whole)

    assert (head, lines) == (rows[0], sum("line " in row for row in rows))
    assert more in [row.strip() for row in rows]
    assert whole.toggle(0)
    assert 40 == sum("line " in row for row in shown(whole))
    assert whole.toggle(0)
    assert rows == shown(whole)


def test_an_error_is_shown_for_any_tool_and_a_command_has_its_exit_code() -> None:
    assert ["● Read x ✗", "  ⎿ no such file"] == shown(used("Read", ok=False, output="no such file"))[:2]
    assert "● shell x ✗ · exit code 3" == shown(used("shell", ok=False, output="no", exit_code=3))[0]


DIFF = "--- a/f.py\n+++ b/f.py\n@@ -9,3 +9,3 @@\n same\n-old\n+new\n end\n"
ASKED = Request(
    id=RequestId("aaaaaaaa-1"), session=SessionId("aaaaaaaa"), tool="Edit", title="f.py", is_diff=True, shown=DIFF
)


def asked(shown_diff: str) -> tuple[Event, ...]:
    request = Request(id=ASKED.id, session=ASKED.session, tool="Edit", title="f.py", is_diff=True, shown=shown_diff)
    return (
        ToolStarted(at=0, call="c", tool="Edit", title="f.py"),
        RequestOpened(at=0, request=request),
        RequestAnswered(at=0, request=ASKED.id, decision=Decision.ALLOW),
        ToolFinished(at=0, call="c", output="The file f.py has been updated.", diff=DIFF),
    )


def test_a_change_that_was_requested_and_made_is_shown_once() -> None:
    whole = transcript(*asked(DIFF.replace("@@ -9,3 +9,3 @@", "@@ -1,3 +1,3 @@")))
    rows = shown(whole)

    assert "● Edit f.py ✓ · +1 −1" == rows[0]
    assert 1 == sum("+new" in row for row in rows)
    assert "    ▸ the same change as above" in rows
    assert not [row for row in rows if "has been updated" in row]
    assert whole.toggle(1)
    assert 2 == sum("+new" in row for row in shown(whole))


def test_a_change_that_differs_from_the_requested_one_is_shown_beside_it() -> None:
    rows = shown(transcript(*asked(DIFF.replace("+new", "+newer"))))

    assert (1, 1) == (sum(row.endswith("+new") for row in rows), sum("+newer" in row for row in rows))
