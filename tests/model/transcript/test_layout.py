"""A session's transcript: what each event looks like, and that it is only drawn as far as somebody looks."""

import re
from datetime import UTC
from unicodedata import category

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import wcswidth

from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import (
    ConnectionLost,
    ConnectionRestored,
    Event,
    LimitLifted,
    LimitReached,
    LogOpened,
    MessageWritten,
    NoticeRaised,
    PlanItem,
    PlanUpdated,
    ReceiptChanged,
    RequestAnswered,
    RequestOpened,
    RequestSetAside,
    RequestWithdrawn,
    SessionEnded,
    SessionStarted,
    SignalSeen,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UnknownEvent,
    UsageReported,
)
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import created
from kasmon.model.transcript.diff import of_inputs
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.text import NARROW, TextLine, Token, cells
from kasmon.sanitize import clean_block

AT = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""
S, R = SessionId("abcdefgh"), RequestId("abcdefgh-1")


def transcript(*events: Event, fold: bool = True) -> Transcript:
    whole = Transcript(fold=fold, zone=UTC)
    for event in events:
        whole.add(event)
    return whole


def shown(*events: Event, width: int = 60, fold: bool = True) -> str:
    return "\n".join(line.text.rstrip() for line in transcript(*events, fold=fold).lines(width)).strip("\n")


def tokens(*events: Event, width: int = 60) -> dict[str, Token]:
    """The token of each piece of text."""
    spans = (span for line in transcript(*events).lines(width) for span in line.spans)
    return {text.strip(): token for text, token in spans if text.strip()}


def request(kind: RequestKind = RequestKind.PERMISSION, **more: object) -> Request:
    return Request(id=R, session=S, kind=kind, **more)  # type: ignore[arg-type]


TURN = (
    SessionStarted(at=AT, backend="scripted", model="small"),
    TurnStarted(at=AT, prompt="Fix the login\nand test it"),
    ThoughtWritten(at=AT, text="Where is it? In the file app.py perhaps, which I should read before I change it."),
    ToolStarted(at=AT, call="1", tool="Bash", title="git status"),
    ToolFinished(at=AT, call="1", output=" M app.py\n?? b.py\n"),
    ToolStarted(at=AT, call="2", tool="Bash", title="pytest"),
    ToolFinished(at=AT, call="2", ok=False, output="1 failed"),
    PlanUpdated(at=AT, items=(PlanItem(text="read", state="done"), PlanItem(text="fix", state="doing"))),
    PlanUpdated(at=AT, items=(PlanItem(text="read", state="done"), PlanItem(text="fix", state="done"))),
    MessageWritten(
        at=AT, text="# Result\nIt was `one` **small** thing:\n- a list as long as two of these rows are long"
    ),
    UsageReported(at=AT, input=5200, output=950, context=3000, limit=200_000, cost_usd=0.123),
    TurnEnded(at=AT + 75),
    SessionEnded(at=AT + 80, exit_code=3),
)


def test_a_character_treated_as_narrow_is_narrow() -> None:
    """For these no table of widths is loaded."""
    assert {1} == {wcswidth(character) for character in NARROW}
    assert not [character for character in NARROW if category(character)[0] == "M"]


def test_a_turn_reads_like_a_conversation() -> None:
    assert shown(*TURN, width=44) == (
        "▶ session started · scripted · small ·\n"
        "2027-01-15 08:00:00\n"
        "\n"
        "❯ Fix the login\n"
        "  and test it\n"
        "\n"
        "✻ Where is it? In the file app.py perhaps,\n"
        "  which I should read before I change it.\n"
        "\n"
        "● Bash git status ✓\n"
        "  ⎿  M app.py\n"
        "    ?? b.py\n"
        "\n"
        "● Bash pytest ✗\n"
        "  ⎿ 1 failed\n"
        "\n"
        "● Plan\n"
        "  ☒ read\n"
        "  ☒ fix\n"
        "\n"
        "  Result\n"
        "  It was one small thing:\n"
        "  • a list as long as two of these rows are\n"
        "    long\n"
        "\n"
        "── done · 08:01:15 · 1 min 15 s · 5.2k in,\n"
        "   950 out · context 1 % · $0.12\n"
        "\n"
        "■ ended with exit code 3 · 08:01:20"
    )


def test_the_kind_of_each_text_is_kept_beside_it() -> None:
    styles = tokens(*TURN, width=200)

    expected = {
        "Fix the login": Token.PROMPT,
        "git status": Token.SUBJECT,
        "✓": Token.OK,
        "✗": Token.FAILED,
        "M app.py": Token.OUTPUT,
        "1 failed": Token.FAILED,
        "Result": Token.HEADING,
        "one": Token.CODE,
        "small": Token.STRONG,
        "•": Token.BULLET,
        "■ ended with exit code 3 · 08:01:20": Token.ERROR,
    }
    assert expected == {text: styles.get(text) for text in expected}


def test_code_keeps_its_lines_broken_only_where_they_must_be_and_everything_else_its_marks() -> None:
    text = "```python\ndef f():\n    return  1\n```\n2 * 3 * 4 | `a\n> said\n1. one\n|a|b|\n# \n#hash"
    assert shown(MessageWritten(at=AT, text=text)) == (
        "  │ python · copy\n  │ def f():\n  │     return  1\n  2 * 3 * 4 | `a\n  │ said\n"
        "  1. one\n     |a|b|\n\n  #hash"
    )

    assert shown(MessageWritten(at=AT, text="```\naaaa bbbb cccc dddd\n```"), width=18) == (
        "  │ copy\n  │ aaaa bbbb cccc\n  │  dddd"
    )


def test_a_tool_that_runs_has_no_result_yet_and_results_find_their_tool() -> None:
    running = (
        ToolStarted(at=AT, call="1", tool="Bash", title="a"),
        ToolStarted(at=AT, call="2", tool="Read", title="b"),
    )

    assert shown(*running) == "● Bash a …\n\n● Read b …"
    finished = ToolFinished(at=AT, call="1", output="one")
    assert shown(*running, finished) == "● Bash a ✓\n  ⎿ one\n\n● Read b …"
    assert shown(ToolFinished(at=AT, call="9", output="x")) == "● a tool 9 ✓\n  ⎿ x"


@pytest.mark.parametrize(("lines", "hidden"), [(12, 0), (13, 0), (14, 2), (200, 188)])
def test_a_long_output_is_cut_with_the_number_of_hidden_lines(lines: int, hidden: int) -> None:
    finished = ToolFinished(at=AT, call="1", output="\n".join(f"line {n}" for n in range(lines)) + "\n")

    text = shown(finished)
    assert lines - hidden == text.count("line ")
    assert (f"… {hidden} more lines" in text) == bool(hidden)
    assert lines == shown(finished, fold=False).count("line ")


def test_a_very_long_output_line_has_the_size_of_its_hidden_part() -> None:
    finished = ToolFinished(at=AT, call="1", output="x" * 5000)

    assert "… 4000 more characters" in shown(finished)
    assert 5000 == shown(finished, fold=False).count("x")


DIFF = """\
--- a/f.py
+++ b/f.py
@@ -9,3 +9,3 @@ def f():
 same
--- old
+new
 end
\\ No newline at end of file
--- a/g.py
+++ b/g.py
@@ -1 +1 @@
-g
+h
"""


def test_a_diff_has_line_numbers_and_marks_added_and_removed_lines() -> None:
    events = (ToolStarted(at=AT, call="1", tool="Edit", title="f.py"), ToolFinished(at=AT, call="1", diff=DIFF))

    assert shown(*events) == (
        "● Edit f.py ✓ · +2 −2\n"
        "       --- a/f.py\n"
        "       +++ b/f.py\n"
        "       @@ -9,3 +9,3 @@ def f():\n"
        "     9  same\n"
        "    10 --- old\n"
        "    10 +new\n"
        "    11  end\n"
        "       \\ No newline at end of file\n"
        "       --- a/g.py\n"
        "       +++ b/g.py\n"
        "       @@ -1 +1 @@\n"
        "     1 -g\n"
        "     1 +h"
    )
    styles = tokens(*events)
    assert (Token.REMOVED, Token.ADDED, Token.SAME) == (styles["--- old"], styles["+new"], styles["same"])
    assert (Token.HUNK, Token.NUMBER) == (styles["@@ -9,3 +9,3 @@ def f():"], styles["10"])
    assert {Token.FAINT} == {styles[head] for head in ("--- a/f.py", "+++ b/f.py", "--- a/g.py", "+++ b/g.py")}


def test_a_diff_with_wrong_counts_is_drawn_tabs_are_spaces_and_an_indented_word_begins_no_empty_row() -> None:
    diff = "@@ -1,1 +1,1 @@\n-a\n+b\n-c\n+d\n"
    assert "    1 -a\n    1 +b\n    2 -c\n    2 +d" in shown(ToolFinished(at=AT, call="1", diff=diff))

    assert "  ⎿ a   b" in shown(ToolFinished(at=AT, call="1", output="a\tb"))
    assert shown(MessageWritten(at=AT, text="    " + "x" * 20), width=14) == "  │ xxxxxxxxxx\n  │ xxxxxxxxxx"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (RequestAnswered(at=AT, request=R, decision=Decision.ALLOW), "allowed once by user"),
        (RequestAnswered(at=AT, request=R, decision=Decision.ALLOW, by="policy"), "allowed once by a rule"),
        (RequestAnswered(at=AT, request=R, decision=Decision.DENY, by="policy", rule="k1"), "denied by rule k1"),
        (
            RequestAnswered(at=AT, request=R, decision=Decision.ALWAYS, rule="k1"),
            "always allowed by user, by rule k1 from now on",
        ),
        (RequestAnswered(at=AT, request=R, decision=Decision.NEVER), "always denied by user"),
        (RequestAnswered(at=AT, request=R, decision=Decision.CANCEL), "denied, and the turn was interrupted by user"),
        (
            RequestAnswered(at=AT, request=R, decision=Decision.ALLOW, who="/dev/pts/3 (pid 12)"),
            "allowed once by user at /dev/pts/3 (pid 12)",
        ),
        (RequestAnswered(at=AT, request=R, decision=Decision.DENY, reason="no"), "denied by user: no"),
        (RequestAnswered(at=AT, request=R, decision=Decision.EDIT), "allowed with edited input by user"),
        (RequestWithdrawn(at=AT, request=R, why="interrupted"), "withdrawn: interrupted"),
        (RequestSetAside(at=AT, request=R), "snoozed"),
    ],
)
def test_a_request_is_shown_with_its_answer(event: Event, told: str) -> None:
    opened = RequestOpened(at=AT, request=request(tool="Bash", title="git push", shown="git push"))

    assert shown(opened, NoticeRaised(at=AT, text="later"), event) == (
        f"? requests to use Bash: git push\n  ⎿ {told}\n· later"
    )


def test_an_edited_input_is_shown_as_a_diff_against_the_requested_one() -> None:
    opened = RequestOpened(at=AT, request=request(tool="Bash", title="git push", shown="git push"))
    diff = of_inputs({"command": "git push -f", "timeout": 5}, {"command": "git push", "timeout": 5})
    answered = RequestAnswered(at=AT, request=R, decision=Decision.EDIT, input={"command": "git push"}, diff=diff)

    assert shown(opened, answered).split("\n")[1:] == [
        "  ⎿ allowed with edited input by user",
        "      @@ -1,2 +1,2 @@",
        "    1 -command: git push -f",
        "    1 +command: git push",
        "    2  timeout: 5",
    ]


def test_the_beginning_of_a_long_diff_is_kept() -> None:
    long = "\n".join(f"+line {number}" for number in range(2000))
    session = created(Launch(session=S, name="docs", agent="claude", mode=Mode.SDK, backend="claude"), AT)
    for event in (
        RequestOpened(at=AT, request=request()),
        RequestAnswered(at=AT, request=R, decision=Decision.EDIT, diff=long),
    ):
        session = apply(session, event)
    kept = session.closed[0].diff

    assert long.startswith(kept.rpartition("\n… ")[0])
    assert kept.endswith(f"… {len(long) - 4000:,} more characters")


def test_a_question_shows_its_options_and_the_chosen_one() -> None:
    asked = request(RequestKind.QUESTION, title="Which?", shown="Which?", options=("red", "blue"))
    answered = RequestAnswered(at=AT, request=R, decision=Decision.CHOOSE, labels=("blue",))

    assert shown(RequestOpened(at=AT, request=asked), answered) == (
        "? asks: Which?\n  1. red\n  2. blue\n  ⎿ chosen by user: blue"
    )


def test_a_request_is_shown_with_the_agents_reason_and_each_options_description() -> None:
    asked = request(
        RequestKind.QUESTION,
        title="Which?",
        shown="Which?",
        options=("red", "blue"),
        option_notes=("warm", ""),
        why="Taste.",
    )

    assert shown(RequestOpened(at=AT, request=asked)) == (
        "? asks: Which?\n  1. red\n     warm\n  2. blue\n    reason: Taste."
    )


def test_a_request_is_shown_whole_with_hidden_characters_and_without_secrets() -> None:
    command = "\n".join(f"echo {n}" for n in range(100)) + "\nrm \u202e ghp_" + "a1" * 20
    asked = request(tool="Bash", title="echo 0", shown=command)

    text = shown(RequestOpened(at=AT, request=asked))
    assert 100 == text.count("echo ")
    assert "⟨U+202E⟩" in text
    assert "⟨hidden: 44 characters⟩" in text


def test_an_edit_asks_with_its_diff() -> None:
    asked = request(tool="Edit", title="f.py", shown=DIFF, is_diff=True)

    text = shown(RequestOpened(at=AT, request=asked))
    assert text.startswith("? requests to use Edit: f.py\n")
    assert "    10 +new\n" in text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (NoticeRaised(at=AT, text="n"), "· n"),
        (NoticeRaised(at=AT, text="w", level="warning"), "! w"),
        (NoticeRaised(at=AT, text="e\nf", level="error"), "✗ e\n  f"),
        (LimitReached(at=AT, until=AT + 60, text="usage limit"), "◔ usage limit · until 08:01:00"),
        (LimitReached(at=AT, until=1e300), "◔ limited · until --:--:--"),
        (LimitLifted(at=AT), "◔ limit lifted"),
        (TurnStarted(at=AT, prompt="p", by="wave"), "❯ p\n  (sent by plan)"),
        (SessionStarted(at=AT, generation=2), "▶ session started · start 2 · 2027-01-15 08:00:00"),
        (SessionEnded(at=AT, signal="SIGKILL"), "■ killed by SIGKILL · 08:00:00"),
        (SessionEnded(at=AT, exit_code=0, why="stopped"), "■ ended with exit code 0 · stopped · 08:00:00"),
        (SessionEnded(at=AT), "■ ended; exit status unknown · 08:00:00"),
        (ConnectionLost(at=AT, what="tmux server", why="w"), "✗ lost the tmux server: w"),
        (ConnectionRestored(at=AT), "· reconnected"),
        (UsageReported(at=AT, input=1, output=999_999), "· 1 in, 1.0M out"),
        (UnknownEvent(at=AT, raw="{}"), "· an event that this version of kasmon cannot read"),
        (LogOpened(at=AT, session=S), ""),
        (SignalSeen(at=AT, source="title", value="x"), ""),
    ],
)
def test_every_other_event_is_a_line_or_nothing(event: Event, text: str) -> None:
    assert text == shown(event)


@pytest.mark.parametrize(("state", "is_said"), [(ReceiptState.LOST, True), (ReceiptState.SUBMITTED, False)])
def test_a_lost_prompt_is_shown_as_lost(state: ReceiptState, is_said: bool) -> None:
    receipt = Receipt(id=ReceiptId("r"), session=S, state=state, text="do it", reason="the agent ended")

    assert ("! prompt lost: do it · the agent ended" if is_said else "") == shown(
        ReceiptChanged(at=AT, receipt=receipt)
    )


def test_the_end_of_a_turn_fills_its_row_with_its_error_and_the_tokens_that_come_behind_it() -> None:
    last = transcript(TurnStarted(at=AT), TurnEnded(at=AT + 5.5, reason="error", error="no network")).lines(50)[-2:]
    assert ["✗ no network", "── failed · 08:00:05 · 5.5 s " + "─" * 21] == [line.text for line in last]

    text = shown(TurnStarted(at=AT), TurnEnded(at=AT), UsageReported(at=AT, input=7, output=8))
    assert "7 in, 8 out" in text.splitlines()[-1]


def test_a_turn_lasts_from_its_own_start_whatever_joins_it() -> None:
    own, taken_in, end = TurnStarted(at=AT), TurnStarted(at=AT + 5, prompt="hurry"), TurnEnded(at=AT + 7)

    assert "7.0 s" in shown(own, taken_in, end).splitlines()[-1]
    assert "2.0 s" in shown(own, SessionStarted(at=AT + 1), taken_in, end).splitlines()[-1]


def test_streamed_text_is_shown_at_the_end_until_its_event_comes() -> None:
    whole = transcript(MessageWritten(at=AT, text="before"))
    view = whole.lines(40)

    whole.write("half a sen")
    assert ["  before", "", "  half a sen"] == [line.text for line in view]
    assert 3 == len(view)
    assert "  half a sen" == view[-1].text
    whole.write("hm", thinking=True)
    assert "✻ hm" == view[-1].text
    whole.add(MessageWritten(at=AT, text="half a sentence."))
    assert ["  before", "", "  half a sentence."] == [line.text for line in view]


def test_a_finished_thought_does_not_end_the_text_after_it() -> None:
    whole = transcript()
    whole.write("hm", thinking=True)
    whole.write("So")
    whole.write("", thinking=True)
    assert ["  So"] == [line.text for line in whole.lines(40) if line.text]

    whole.write("")
    assert 0 == len(whole.lines(40))


def test_every_change_is_detected() -> None:
    whole = transcript()
    numbers = [whole.changes]
    for event in TURN:
        whole.add(event)
        numbers.append(whole.changes)

    assert numbers == sorted(set(numbers))


nasty = st.text(
    st.one_of(st.characters(), st.sampled_from("a b\tc\n漢字👩‍💻é\u0301\u200d\ufe0f☺\x1b[31m\u202e`*#->|")),
    max_size=200,
)


WRITTEN = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"), "\ufffd")
"""Marks that a script writes between letters, one of which may stand in another row."""


@given(nasty, st.integers(1, 40))
@example("A\xadA", 1)
def test_no_row_is_wider_than_requested_and_none_has_control_characters(text: str, width: int) -> None:
    events = (
        TurnStarted(at=AT, prompt=text),
        MessageWritten(at=AT, text=text),
        ThoughtWritten(at=AT, text=text),
        ToolStarted(at=AT, call=text, tool=text, title=text),
        ToolFinished(at=AT, call=text, output=text, diff=text),
        PlanUpdated(at=AT, items=(PlanItem(text=text),)),
        RequestOpened(at=AT, request=request(tool=text, title=text, shown=text, options=(text,))),
        RequestAnswered(at=AT, request=R, decision=Decision.DENY, by=text, reason=text),
        NoticeRaised(at=AT, text=text),
        TurnEnded(at=AT, reason="error", error=text),
        SessionEnded(at=AT, signal=text, why=text),
    )
    for line in transcript(*events).lines(width):
        assert cells(line.text) <= max(width, 2)
        assert wcswidth(line.text) <= max(width, 2)
        assert line.text.translate(WRITTEN) == clean_block(line.text).translate(WRITTEN)
        assert "\n" not in line.text


@given(nasty)
def test_every_cleaned_text_is_preserved(text: str) -> None:
    """Nothing but white space is lost at the ends of rows, at any width."""
    expected = "".join(clean_block(text).split())
    for width in (9, 30, 5000):
        rows = transcript(ThoughtWritten(at=AT, text=text), fold=False).lines(width)
        assert expected == "".join("".join(line.text for line in rows).removeprefix("✻").split())


@given(nasty)
def test_only_the_marks_of_a_message_are_left_out(text: str) -> None:
    marks = str.maketrans("", "", "`*_#~<>!-+•│| 0123456789.):─┼\\[]xX☐☒▣")
    rows = transcript(MessageWritten(at=AT, text=text)).lines(5000)

    drawn = "".join("".join(line.text for line in rows).split()).translate(marks)
    assert "".join(clean_block(text).split()).translate(marks) == drawn


@pytest.mark.parametrize("sign", ["e\u0301\u0302", "☺\ufe0f", "👩\u200d💻", "का", "漢"], ids=ascii)
@pytest.mark.parametrize("width", range(11, 17))
def test_parts_that_belong_together_stay_in_one_row(sign: str, width: int) -> None:
    rows = transcript(ThoughtWritten(at=AT, text=sign * 20)).lines(width)[0:]

    assert {sign} == {piece for row in rows for piece in re.split(f"({sign})", row.text[2:]) if piece}
    assert all(width - 4 <= wcswidth(row.text) <= width or sign == "👩\u200d💻" for row in rows[:-1])


LONG = 100_000


def long_session(events: int = LONG) -> Transcript:
    whole = Transcript(zone=UTC)
    for n in range(events // 5):
        whole.add(TurnStarted(at=AT + n, prompt=f"do {n}"))
        whole.add(MessageWritten(at=AT + n, text=f"Well, {n} is done.\n- as you asked"))
        whole.add(ToolStarted(at=AT + n, call=f"c{n}", tool="Bash", title="ls"))
        whole.add(ToolFinished(at=AT + n, call=f"c{n}", output="a"))
        whole.add(TurnEnded(at=AT + n))
    return whole


def test_a_hundred_thousand_events_open_at_their_end_without_rendering_all() -> None:
    whole = long_session()
    view = whole.lines(80)

    page = view[-40:]

    assert 40 == len(page)
    assert page == whole.tail(80, 40)
    assert "── done" in page[-1].text
    assert view.drawn <= 40
    assert 0.9 < view.estimate / (len(whole.blocks) * 2.5) < 1.1


def test_the_text_is_measured_in_portions_and_every_row_can_be_reached() -> None:
    whole = long_session(10_000)
    view = whole.lines(80)
    assert not view.measure(100)
    assert 100 == view.drawn

    while not view.measure(2_000):
        assert view.measured <= view.estimate

    assert view.estimate == view.measured == len(view)
    assert "❯ do 0" == view[0].text
    assert "❯ do 0" == view[:3][0].text
    before = view.drawn
    view[1000:1040]
    assert view.drawn - before <= 40


MIXED = st.lists(
    st.one_of(
        st.builds(TurnStarted, at=st.just(AT), prompt=st.text("ab \n", max_size=30)),
        st.builds(MessageWritten, at=st.just(AT), text=st.text("ab \n", max_size=60)),
        st.builds(ToolStarted, at=st.just(AT), call=st.sampled_from("123"), tool=st.just("T")),
        st.builds(ToolFinished, at=st.just(AT), call=st.sampled_from("123"), output=st.text("ab\n", max_size=30)),
        st.just(TurnEnded(at=AT)),
        st.just(UsageReported(at=AT, input=1)),
        st.just(PlanUpdated(at=AT, items=(PlanItem(text="a"),))),
        st.just(LogOpened(at=AT, session=S)),
    ),
    max_size=25,
)


@given(MIXED, MIXED, st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 30))
def test_after_any_scrolling_the_result_is_the_same_as_a_new_rendering(
    first: list[Event], second: list[Event], start: int, stop: int, width: int
) -> None:
    whole = transcript(*first)
    view = whole.lines(width)
    view[start:stop]
    for event in second:
        whole.add(event)
        view[-3:]
    whole.write("being written")

    fresh = transcript(*first, *second)
    fresh.write("being written")
    rows: list[TextLine] = list(fresh.lines(width))
    assert rows == list(view)
    assert rows[start:stop] == view[start:stop]
    assert rows[-5:] == view[-5:]
    assert rows[::3] == view[::3]
    assert len(rows) == len(view)
    assert [rows[i] for i in range(-len(rows), len(rows))] == [view[i] for i in range(-len(rows), len(rows))]
    for outside in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            view[outside]


@pytest.mark.parametrize("width", [1, 0, -5])
def test_no_width_is_narrower_than_one_wide_character(width: int) -> None:
    rows = transcript(NoticeRaised(at=AT, text="a漢")).lines(width)

    assert ["·", "a", "漢"] == [line.text.strip() for line in rows]


def test_views_of_other_widths_do_not_invalidate_an_old_one() -> None:
    whole = transcript(ToolStarted(at=AT, call="1", tool="Bash", title="ls"))
    view = whole.lines(40)
    assert "● Bash ls …" == view[-1].text
    for width in range(50, 60):
        whole.lines(width)[-1:]

    whole.add(ToolFinished(at=AT, call="1", output="a"))

    assert ["● Bash ls ✓", "  ⎿ a"] == [line.text for line in view[-2:]]
