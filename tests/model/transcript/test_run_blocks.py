"""Code that ran, in a transcript: all of it, how it ended, what it printed."""

import msgspec

from kasmon.model.events import Event, ToolFinished, ToolStarted
from kasmon.model.transcript.clipboard_text import piece
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.run_blocks import codes
from kasmon.model.transcript.search.blocks import CaseFoldedText, TranscriptSearch
from kasmon.model.transcript.style import FOLD_LINES

CODE = "x = 1\n\nfor y in range(3):\n    print(x + y)"


def began(code: str = CODE, tool: str = "python", call: str = "1") -> ToolStarted:
    shown = msgspec.json.encode({"code": code}).decode()
    return ToolStarted(at=10.0, call=call, tool=tool, title=code.split("\n")[0], input=shown)


def ended(output: str = "1\n2\n3", exit_code: int = 0, call: str = "1", at: float = 10.25) -> ToolFinished:
    return ToolFinished(at=at, call=call, ok=not exit_code, output=output, exit_code=exit_code)


def told(*events: Event, written: str = "") -> list[str]:
    transcript = Transcript()
    for event in events:
        transcript.add(event)
    transcript.write(written)
    return [line.text for line in transcript.lines(60)]


def test_all_of_the_code_is_shown_as_it_was_written() -> None:
    rows = told(began(), ended())

    assert "● python ✓ 250 ms" in rows
    assert ["  x = 1", "", "  for y in range(3):", "      print(x + y)"] == [
        row.rstrip() for row in rows[rows.index("  x = 1") :][:4]
    ]


def test_the_output_is_below_the_code_with_its_end() -> None:
    rows = told(began(tool="bash", code="false"), ended("no\n", 3, at=14.0))

    assert "● bash ✗ exit 3 · 4.0 s" in rows
    assert "  ⎿ no" in rows


def test_what_it_prints_is_shown_as_it_is_while_it_runs_and_once_as_a_fact() -> None:
    rows = told(began(), written="# 1\n**2**")
    assert rows[-2:] == ["  ⎿ # 1", "    **2**"]

    rows = told(began(), ended(), written="1\n2\n3")
    assert 1 == sum("1" in row and "⎿" in row for row in rows)
    assert "    3" == rows[-1]


def test_long_code_is_folded_and_can_be_opened() -> None:
    transcript = Transcript()
    transcript.add(began("\n".join(f"x{n} = {n}" for n in range(40))))
    folded = [line.text for line in transcript.lines(60)]

    assert f"    … {40 - FOLD_LINES} more lines" in folded
    assert transcript.toggle(0)
    assert "  x39 = 39" in [line.text for line in transcript.lines(60)]


def test_each_run_code_is_listed_once_the_latest_last() -> None:
    transcript = Transcript()
    for number, code in enumerate(("a", "b", "a")):
        transcript.add(began(code, call=str(number)))

    assert ["b", "a"] == codes(transcript.blocks)


def test_a_tool_named_like_an_interpreter_stays_a_tool() -> None:
    rows = told(ToolStarted(at=0.0, call="1", tool="python", title="manage.py", input='{"args": []}'))

    assert "● python manage.py …" in rows


def test_code_can_be_copied_whole_and_found_by_its_later_lines() -> None:
    transcript = Transcript()
    transcript.add(began())
    transcript.add(ended())
    copied = piece(transcript.blocks[0], 1)
    search = TranscriptSearch(transcript, "range(3)")
    search.scan(10)

    assert copied is not None
    assert copied.text == CODE
    assert [0] == search.matches
    assert CaseFoldedText("range(3)") == search.query


def test_no_control_character_of_code_reaches_the_terminal() -> None:
    assert not any("\x1b" in row for row in told(began("print('\x1b[2J')"), ended("\x1b]0;x\x07")))
