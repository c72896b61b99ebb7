"""What makes a transcript good to read: colours, sub-agents below their call, folds, places to go to, words to find."""

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.events import (
    Event,
    LogOpened,
    MessageWritten,
    NoticeRaised,
    ReceiptChanged,
    SubtaskChanged,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.transcript import syntax
from kasmon.model.transcript.clipboard_text import last_answer, piece
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.markdown.renderer import code_blocks
from kasmon.model.transcript.rows import RowPosition
from kasmon.model.transcript.search.blocks import TranscriptSearch, marked
from kasmon.model.transcript.text import TextLine, Token
from kasmon.model.transcript.tool_blocks import ansi_lines
from kasmon.sanitize import clean_block

WIDTH = 60


def transcript(*events: Event) -> Transcript:
    whole = Transcript(zone=UTC)
    for event in events:
        whole.add(event)
    return whole


def shown(whole: Transcript, width: int = WIDTH) -> list[str]:
    return [line.text.rstrip() for line in whole.lines(width)]


def said(text: str, within: str = "") -> MessageWritten:
    return MessageWritten(at=0.0, text=text, within=within)


def call(name: str, title: str = "", within: str = "") -> ToolStarted:
    return ToolStarted(at=0.0, call=name, tool="Task" if "task" in name else "Bash", title=title, within=within)


def output(name: str, text: str) -> ToolFinished:
    return ToolFinished(at=0.0, call=name, output=text)


# Code.


def test_code_is_coloured_by_its_language_and_its_text_is_unchanged() -> None:
    lines = ["def f(x):  # why", '    return "a" + str(1)', ""]
    rows = syntax.highlight(lines, "py")

    assert lines == ["".join(text for text, _ in row) for row in rows]
    tokens = {text: token for row in rows for text, token in row}
    assert Token.KEYWORD == tokens["def"]
    assert Token.NAME == tokens["f"]
    assert Token.COMMENT == tokens["# why"]
    assert Token.FIGURE == tokens["1"]
    assert Token.LITERAL in tokens.values()


@pytest.mark.parametrize("language", sorted(syntax.LANGUAGES))
def test_every_language_that_is_known_can_be_coloured(language: str) -> None:
    lines = ["a = 'b' # c", "", "\tx: [1, 2]"]

    assert lines == ["".join(text for text, _ in row) for row in syntax.highlight(lines, language)]


@pytest.mark.parametrize(
    ("lines", "language"),
    [(["x = 1"], "klingon"), (["x = 1" * 100], "py"), (["x = 1"] * 2000, "py")],
    ids=["not known", "a long line", "much of it"],
)
def test_slow_or_unknown_code_has_one_colour(lines: list[str], language: str) -> None:
    tokens = {token for row in syntax.highlight(lines, language) for _, token in row}

    assert {Token.CODE_BLOCK} == tokens


def test_the_code_blocks_of_a_message_are_distinguished() -> None:
    text = "one\n```py\na = 1\n```\ntwo\n~~~\n```\nb\n~~~\nthree\n```\nc"

    assert ["a = 1", "```\nb", "c"] == code_blocks(text)
    rows = transcript(said(text)).lines(WIDTH)
    assert [0, 1, 1, 0, 2, 2, 2, 0, 3, 3] == [row.code for row in rows]


# Colours of output.


def test_the_colours_of_output_are_kept_as_styles() -> None:
    text = "\x1b[31mred\x1b[0m plain \x1b[1;32mloud\x1b[22m green\x1b[39m\n\x1b[1mbold\x1b[m \x1b[2mfaint\x1b[m"

    assert [
        [("red", Token.RED), (" plain ", Token.OUTPUT), ("loud", Token.LOUD_GREEN), (" green", Token.GREEN)],
        [("bold", Token.LOUD), (" ", Token.OUTPUT), ("faint", Token.FAINT)],
    ] == ansi_lines(text, Token.OUTPUT)


@pytest.mark.parametrize(
    ("parameters", "token"),
    [
        ("91", Token.RED),
        ("38;5;208", Token.YELLOW),
        ("38;5;33", Token.CYAN),
        ("38;2;255;20;20", Token.RED),
        ("38:2:20:20:255", Token.BLUE),
        ("38;5;244", Token.OUTPUT),
        ("48;5;9", Token.OUTPUT),
        ("48;5;9;35", Token.MAGENTA),
        ("38;5", Token.OUTPUT),
        ("38;2;300;1", Token.RED),
        ("999", Token.OUTPUT),
        ("7", Token.OUTPUT),
        ("8", Token.OUTPUT),
    ],
)
def test_every_way_to_write_a_colour_gives_one_of_six_hues(parameters: str, token: Token) -> None:
    assert [[("x", token)]] == ansi_lines(f"\x1b[{parameters}mx", Token.OUTPUT)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;a title\x1b[31m in red\x07x",
        "a\x1b[2J\x1b[Hb\x1b[31mc\x1b[5n",
        "\x1bP1;2|\x1b[31mq\x1b\\x",
        "\x1b[3\x1b[31mx\x1b[",
        "a\u202eb\x1b[31m\u200bc",
        "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b[31mx",
        "a\r\x1b[31mb\x08c",
    ],
)
def test_only_colours_of_sequences_are_kept(text: str) -> None:
    rows = ansi_lines(text, Token.OUTPUT)

    whole = "\n".join("".join(piece for piece, _ in row) for row in rows)
    assert whole == clean_block(whole)
    assert "\x1b" not in whole
    assert "\x07" not in whole


# Sub-agents.


def test_work_of_a_sub_agent_is_indented_below_its_call() -> None:
    events = (
        call("task-1", "look around"),
        said("I look.", "task-1"),
        call("b", "ls", "task-1"),
        call("task-2", "look elsewhere"),
        said("Me too.", "task-2"),
        said("I am done.", "task-1"),
        output("task-1", "Nothing there."),
        said("So am I."),
    )
    whole = transcript(*events)

    assert [
        "● Task look around ✓",
        "    ▸ 3 steps, last: I am done.",
        "",
        "● Task look elsewhere …",
        "    ▸ 1 step, last: Me too.",
        "",
        "● Task look around ✓",
        "  ⎿ Nothing there.",
        "",
        "  So am I.",
    ] == shown(whole)
    folded = shown(whole)
    assert whole.toggle(0)
    assert whole.toggle(3)
    assert [
        "● Task look around ✓",
        "    ▾ 3 steps",
        "│",
        "│   I look.",
        "│",
        "│ ● Bash ls …",
        "",
        "● Task look elsewhere …",
        "    ▾ 1 step",
        "│",
        "│   Me too.",
        "│",
        "│ within Task look around",
        "│   I am done.",
        "",
        "● Task look around ✓",
        "  ⎿ Nothing there.",
        "",
        "  So am I.",
    ] == shown(whole)
    assert whole.toggle(0)
    assert whole.toggle(3)
    assert folded == shown(whole)


def test_a_sub_agents_sub_agent_is_indented_further_and_never_too_far() -> None:
    events = [call("task-0", "0"), *(call(f"task-{n}", str(n), f"task-{n - 1}") for n in range(1, 30))]

    whole = transcript(*events)
    assert ["● Task 0 …", "    ▸ 1 step, last: Task 1"] == shown(whole, 40)
    assert whole.toggle(29)
    rows = shown(whole, 40)
    assert "│ │ ● Task 2 …" in rows
    assert "│ │ │ │ ● Task 29 …" in rows
    assert all(len(row) <= 10 for row in shown(whole, 10))


def test_the_work_of_a_sub_agent_with_a_match_is_unfolded() -> None:
    whole = transcript(call("task-0", "0"), call("task-1", "1", "task-0"), said("the needle", "task-1"), said("end"))
    search = TranscriptSearch(whole, "needle")
    search.scan(10)

    assert RowPosition(2, 1) == search.above(RowPosition(3, 0), whole.lines(WIDTH))
    assert "│ │   the needle" in shown(whole)


SUBTASK = SubtaskChanged(at=0, id="t", call="task-0", title="look", job="agent", in_background=True)


def test_a_sub_agent_shows_its_state_and_usage_beside_its_call() -> None:
    begun = (call("task-0", "look"), SUBTASK)
    running = replace(SUBTASK, tokens=1502, tools=1, text="Running ls")
    ended = replace(running, state="done", tokens=15_220, tools=2, duration_s=83.0)

    assert ["● Task look … · in the background"] == shown(transcript(*begun))
    assert ["● Task look … · in the background · 1 tool · 1.5k tokens"] == shown(transcript(*begun, running))
    assert ["● Task look ✓ · 2 tools · 15.2k tokens · 1 min 23 s"] == shown(
        transcript(*begun, running, output("task-0", ""), ended)
    )
    stopped = replace(running, state="stopped", tokens=0, tools=0)
    assert ["● Task look ✗ · stopped"] == shown(transcript(*begun, stopped))


def test_the_output_of_a_background_command_is_below_its_call_and_hostile_output_only_text() -> None:
    begun = replace(SUBTASK, call="b", job="command")
    ended = replace(begun, state="failed", output="one\n\x1b]8;;http://evil\x07[x](y)\x1b[2J **two**")
    whole = transcript(call("b", "make"), begun, output("b", "started"), said("I go on."), ended)

    assert ["● Bash make ✗ · failed", "  ⎿ started", "  ⎿ one", "    [x](y) **two**", "", "  I go on."] == shown(whole)
    assert {} == whole.subtasks
    assert ["● command look ✗ · failed", "  ⎿ one", "    [x](y) **two**"] == shown(transcript(ended))


# Folds.

LONG = "\n".join(f"line {number}" for number in range(100))


def test_a_fold_is_opened_and_folded_again() -> None:
    whole = transcript(call("a", "seq"), output("a", LONG), said("done"))
    folded = shown(whole)
    assert "    … 88 more lines" in folded
    assert whole.lines(WIDTH).block(0)[-1].fold

    assert whole.toggle(0)
    opened = shown(whole)
    assert "    line 99" in opened
    assert "    ▴ collapse" in opened
    assert len(opened) == len(whole.lines(WIDTH))

    assert whole.toggle(0)
    assert folded == shown(whole)


def test_a_block_without_hidden_rows_has_no_fold() -> None:
    whole = transcript(call("a", "seq"), output("a", "short"), said(LONG))

    assert not whole.toggle(0)
    assert not whole.toggle(1)


# Tables, rules and tasks.

TABLE = "| Name | Size | What |\n|:--|--:|:-:|\n| `a` \\| b | 1 | **x** |\n| 漢字 | 1,000 |\n"


def test_a_table_is_in_columns_with_its_cells_aligned() -> None:
    rows = shown(transcript(said(f"Look:\n{TABLE}and on")))

    assert [
        "  Look:",
        "  Name  │  Size │ What",
        "  ──────┼───────┼─────",
        "  a | b │     1 │  x",
        "  漢字  │ 1,000 │",
        "  and on",
    ] == rows


def test_long_cells_of_a_table_continue_below() -> None:
    text = f"| a | b |\n|---|---|\n| {'word ' * 20} | {'long ' * 20} |"
    rows = shown(transcript(said(text)), 40)

    assert all(len(row) <= 40 for row in rows)
    assert "  word word word    │ long long long" == rows[2]
    assert 20 == "".join(rows).count("word") == "".join(rows).count("long")


@pytest.mark.parametrize(
    "text",
    ["| a |\n|---|\n| 1 | 2 |", "| a | b |\n|---|\n| 1 |", "|a|b|\n| c | d |", "a | b", "| " * 60 + "\n" + "|-" * 60],
    ids=["too many cells", "another head", "no columns told", "one line", "no room"],
)
def test_text_that_is_no_table_or_would_lose_a_part_is_unchanged(text: str) -> None:
    rows = shown(transcript(said(text)))

    assert "".join(text.split()) == "".join("".join(rows).split())


def test_tasks_are_boxes_and_a_rule_is_a_short_line() -> None:
    rows = shown(transcript(said("- [ ] open\n- [x] done\n  - [X] too\n\n---\n1. [x] no")))

    assert ["  ☐ open", "  ☒ done", "    ☒ too", "", f"  {'─' * 24}", "  1. [x] no"] == rows


# Folds of thoughts.


@pytest.mark.parametrize(
    ("text", "first", "told"),
    [
        ("\n".join(f"- guess {n}" for n in range(40)), "✻ - guess 0", "… 28 more lines"),
        ("I wonder about it. " * 100, "✻ I wonder about it.", "… 902 more characters"),
        ("x" * 3000, "✻ xxxx", "… 2000 more characters"),
        ("a\n" + "I wonder. " * 150 + "\nb\nc", "✻ a", "… 3 more lines"),
    ],
    ids=["lines", "words", "one word", "both"],
)
def test_a_long_thought_is_folded_and_can_be_opened(text: str, first: str, told: str) -> None:
    whole = transcript(ThoughtWritten(at=0.0, text=text))
    folded = shown(whole)
    assert folded[0].startswith(first)
    assert f"  {told}" == folded[-1]
    assert [False] * (len(folded) - 1) + [True] == [row.fold for row in whole.lines(WIDTH)]

    assert whole.toggle(0)
    opened = shown(whole)
    assert "".join(text.split()) == "".join("".join(opened[:-1]).removeprefix("✻").split())
    assert "  ▴ collapse" == opened[-1]
    assert whole.toggle(0)
    assert folded == shown(whole)


def test_a_long_prompt_is_folded_too() -> None:
    whole = transcript(TurnStarted(at=0.0, prompt="\n".join(f"pasted {n}" for n in range(5000))))

    assert ["❯ pasted 0", "  pasted 11", "  … 4988 more lines"] == [shown(whole)[row] for row in (0, 11, 12)]
    assert whole.toggle(0)
    assert ["  pasted 4999", "  ▴ collapse"] == shown(whole)[-2:]


def test_a_thought_is_whole_while_it_is_streamed_and_when_little_would_be_hidden() -> None:
    text = "\n".join(f"guess {n}" for n in range(40))
    whole = transcript(ThoughtWritten(at=0.0, text="I wonder about it. " * 55))
    assert not whole.toggle(0)
    whole.write(text, thinking=True)

    assert "  guess 39" == shown(whole)[-1]


def test_words_within_a_folded_thought_are_found_and_shown() -> None:
    whole = transcript(ThoughtWritten(at=0.0, text="I wonder about it. " * 100 + "the needle"))
    lines = whole.lines(WIDTH)
    search = TranscriptSearch(whole, "needle")
    search.scan(10)
    found = search.above(RowPosition(1, 0), lines)

    assert found is not None
    assert "needle" in lines.block(found.block)[found.row].text


# Places.


def test_a_row_is_found_by_its_position_and_a_position_by_its_row() -> None:
    whole = transcript(*(said(f"message {number}\nin two rows") for number in range(50)))
    whole.write("and this is being written")
    lines = whole.lines(WIDTH)
    assert [RowPosition(50, 1), RowPosition(49, 2), RowPosition(0, 0), None] == [
        lines.find_position(above) for above in (0, 2, 150, 151)
    ]
    for block in range(50):
        place = RowPosition(block, 1 if block else 0)
        assert place == lines.find_position(lines.above(place))
        assert [f"  message {block}"] == [row.text for row in lines.ending(place, 1)]


@given(st.lists(st.sampled_from(("notice", "message", "nothing")), max_size=12), st.data())
def test_the_cursor_moves_from_row_to_row_in_order(kinds: list[str], data: st.DataObject) -> None:
    """However little was drawn before; blocks without rows are walked over, and nobody walks out of it."""
    facts: dict[str, Event] = {
        "notice": NoticeRaised(at=0.0, text="n"),
        "message": said("m\n\n- m"),
        "nothing": LogOpened(at=0.0, session=SessionId("s")),
    }
    whole = transcript(*(facts[kind] for kind in kinds))
    whole.write(data.draw(st.sampled_from(("", "being written"))))
    lines, drawn = whole.lines(WIDTH), whole.lines(WIDTH)
    paths = [lines.find_position(above) for above in range(len(drawn))][::-1]
    fresh = transcript(*(facts[kind] for kind in kinds))
    fresh.write("being written" if whole.written(WIDTH) else "")
    for start, place in enumerate(paths):
        assert place is not None
        steps = data.draw(st.integers(-len(paths) - 2, len(paths) + 2))
        assert paths[min(max(start + steps, 0), len(paths) - 1)] == fresh.lines(WIDTH).walk(place, steps)
        assert [*drawn][max(0, start - 3) : start + 1] == fresh.lines(WIDTH).ending(place, 4)
    assert (paths[-1] if paths else RowPosition(0, 0)) == fresh.lines(WIDTH).last


def test_turns_and_prompts_are_located() -> None:
    def moved(state: ReceiptState, prompt: str = "") -> ReceiptChanged:
        receipt = Receipt(id=ReceiptId("s-r1"), session=SessionId("s"), state=state, text="first")
        return ReceiptChanged(at=0.0, receipt=receipt, prompt=prompt)

    whole = transcript(
        TurnStarted(at=0.0, prompt="first"),
        said("yes"),
        TurnStarted(at=0.0, prompt="other", by="wave"),
        TurnStarted(at=0.0, prompt="second"),
        moved(ReceiptState.QUEUED, "first\nand more"),
        TurnStarted(at=0.0, prompt="first"),
    )
    assert [0, 2, 3, 4] == whole.turns.tolist()
    assert ["second", "first\nand more", "first"] == [*whole.prompts]
    assert {"s-r1": "first\nand more"} == whole.waiting

    whole.add(moved(ReceiptState.STARTED))
    assert {} == whole.waiting


# Copying.


def test_a_code_block_is_copied_whole_and_an_answer_as_it_was_written() -> None:
    text = "Do **this**:\n```sh\nmake\n  test\n```"
    whole = transcript(
        said(text), said("inner", "task"), call("a", "ls"), output("a", "\x1b[31mx\x1b[0m\x1b]52;c;eA==\x07")
    )

    code_block, answer, printed = piece(whole.blocks[0], 1), last_answer(whole), piece(whole.blocks[2])
    assert code_block is not None
    assert answer is not None
    assert printed is not None
    assert ("code block", "make\n  test") == (code_block.what, code_block.text)
    assert ("answer", text) == (answer.what, answer.text)
    assert ("output", "x") == (printed.what, printed.text)
    assert last_answer(transcript(call("a"))) is None


# Finding.


def test_words_are_found_upwards_and_downwards_whatever_their_case() -> None:
    whole = transcript(
        *(said(f"message {number}" + ("\n\nNeedle" if number % 10 == 0 else "")) for number in range(50))
    )
    lines = whole.lines(WIDTH)
    search = TranscriptSearch(whole, "needle")
    search.scan(100)

    assert search.is_done
    assert [0, 10, 20, 30, 40] == search.matches
    assert RowPosition(40, 3) == search.above(RowPosition(50, 0), lines)
    assert RowPosition(30, 3) == search.above(RowPosition(40, 3), lines)
    assert RowPosition(40, 3) == search.below(RowPosition(30, 3), lines)
    assert search.below(RowPosition(40, 3), lines) is None


def test_a_search_proceeds_in_portions_and_includes_new_text() -> None:
    whole = transcript(said("a needle"), *(said("hay") for _ in range(99)))
    search = TranscriptSearch(whole, "needle")
    search.scan(50)
    assert not search.is_done
    assert [] == search.matches
    search.scan(50)
    assert [0] == search.matches

    whole.add(call("x", "hay"))
    whole.add(said("a needle"))
    search.scan(0)
    assert [0, 101] == search.matches
    whole.add(output("x", "needle"))
    search.scan(0)
    assert [0, 100, 101] == search.matches


def test_matches_across_two_rows_and_in_a_fold_are_found() -> None:
    whole = transcript(
        said("a " * 28 + "split words here"), call("a", "seq"), output("a", LONG), NoticeRaised(at=0.0, text="x")
    )
    lines = whole.lines(WIDTH)
    split, hidden = TranscriptSearch(whole, "split words"), TranscriptSearch(whole, "line 77")
    split.scan(100)
    hidden.scan(100)

    assert RowPosition(0, 1) == split.above(RowPosition(9, 0), lines)
    found = hidden.above(RowPosition(9, 0), lines)
    assert found is not None
    assert "line 77" in lines.block(found.block)[found.row].text


def test_matches_are_marked() -> None:
    line = TextLine((("one Nee", Token.TEXT), ("dle two needle", Token.CODE)))

    assert (
        ("one ", Token.TEXT),
        ("Nee", Token.FOUND),
        ("dle", Token.FOUND),
        (" two ", Token.CODE),
        ("needle", Token.FOUND),
    ) == marked(line, TranscriptSearch(Transcript(), "NEEDLE").query).spans


def test_text_that_no_row_shows_is_never_found() -> None:
    whole = transcript(*(said("``` hidden") for _ in range(200)), said("``` hidden\n```\nnot hidden"))
    lines = whole.lines(WIDTH)
    search = TranscriptSearch(whole, "```")
    search.scan(1000)
    assert 201 == len(search.matches)

    calls = 0
    while search.above(RowPosition(300, 0), lines) is None and search.tires:
        calls += 1
        search.tires = False
    assert [] == search.matches
    assert 5 == calls
