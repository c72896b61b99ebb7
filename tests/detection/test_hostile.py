"""Whatever stands on a screen, it is never read as something else and surely so, and never read slowly."""

import re
import string

import pytest

from kasmon.detection.reader import ScreenReading, read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.rules.file import ScreenRules
from kasmon.detection.rules.schema import UNCLEAR
from kasmon.detection.rules.validation import patterns
from kasmon.detection.terminal_screen import LONGEST, TerminalScreen, captured, shown
from kasmon.model.permission import Decision
from tests.support.detection.expected import NOW, reading_of, screen_of
from tests.support.detection.golden import Case, cases

RECORDED = [case for case in cases() if "made" not in case.expected]
DIALOGS = [case for case in RECORDED if case.expected["state"] == "asking" and reading_of(case).menu]
BOXES = [case for case in RECORDED if reading_of(case).composer and case.agent not in ("bash", "sh")]
CONSENTS = {Decision.ALLOW, Decision.ALWAYS}


def rules_of(case: Case) -> ScreenRules:
    chosen = shipped().rules(case.agent, "" if case.version == "any" else case.version)
    assert chosen is not None
    return chosen.rules


def plain_rows(case: Case) -> list[str]:
    return [row.text for row in screen_of(case).rows]


def again(case: Case, rows: list[str], *, has_cursor: bool = True) -> ScreenReading:
    """*rows* as the screen of *case*, whose cursor and title stay."""
    whole = screen_of(case)
    shot = shown(rows, cursor=whole.cursor if has_cursor else None, cursor_visible=whole.cursor_visible)
    return read(shot, rules_of(case), NOW)


def is_sure(reading: ScreenReading) -> bool:
    """Whether it says one state."""
    return reading.state != UNCLEAR and "|" not in reading.state


@pytest.mark.parametrize("case", DIALOGS, ids=[case.id for case in DIALOGS])
def test_a_partly_drawn_dialog_is_a_dialog_or_nothing(case: Case) -> None:
    rows = plain_rows(case)
    for end in range(len(rows)):
        reading = again(case, rows[:end])
        assert not is_sure(reading) or reading.state == case.expected["state"], f"{end} rows"


@pytest.mark.parametrize("case", DIALOGS, ids=[case.id for case in DIALOGS])
def test_a_dialog_whose_beginning_scrolled_away_cannot_be_allowed(case: Case) -> None:
    """What a person did not see nobody agrees to."""
    rows, whole = plain_rows(case), reading_of(case).menu
    for start in range(1, len(rows)):
        reading = again(case, rows[start:], has_cursor=False)
        menu = reading.menu
        assert not is_sure(reading) or reading.state == case.expected["state"], f"from row {start}"
        assert menu is None or whole is None or menu.digest == whole.digest or not CONSENTS & set(menu.keys)


@pytest.mark.parametrize("case", BOXES, ids=[case.id for case in BOXES])
def test_a_partly_drawn_screen_has_its_true_state_or_none(case: Case) -> None:
    rows = plain_rows(case)
    for end in range(len(rows)):
        for text in (rows[:end], ["" for _ in rows[:end]] + rows[end:]):
            reading = again(case, text)
            state = reading.state
            assert state not in ("asking", "limited") or state == case.expected["state"], f"{end} rows"
            assert reading.menu is None or reading.state == case.expected["state"]


@pytest.mark.parametrize("indent", ["", "  ", "● ", "│ "], ids=["as it is", "indented", "said", "framed"])
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
def test_a_dialog_that_an_agent_quotes_is_no_dialog(agent: str, indent: str) -> None:
    """A prompt forged in an agent's output, above the place where a person types."""
    quoted = [case for case in DIALOGS if case.agent == agent]
    for box in (case for case in BOXES if case.agent == agent):
        place = reading_of(box).composer
        assert place is not None
        rows = plain_rows(box)
        top = place.first_row - 2  # what is ruled above the box stays where it is
        for dialog in quoted:
            lines = [f"{indent}{row}" for row in plain_rows(dialog) if row][-top:]
            reading = again(box, [*[""] * (top - len(lines)), *lines, *rows[top:]])
            assert reading.menu is None, f"{dialog.id} in {box.id}"
            assert not is_sure(reading) or reading.state in ("idle", "working", box.expected["state"])


@pytest.mark.parametrize("case", DIALOGS, ids=[case.id for case in DIALOGS])
def test_a_dialog_with_an_input_box_below_it_is_not_answered(case: Case) -> None:
    box = next((box for box in BOXES if (box.agent, box.version) == (case.agent, case.version)), None)
    if box is None:
        pytest.skip("no screen of this version has a place to type")
    place = reading_of(box).composer
    assert place is not None
    rows = [*[row for row in plain_rows(case) if row], *plain_rows(box)[place.first_row - 2 :]]
    shot = screen_of(box)
    cursor = None if shot.cursor is None else (shot.cursor[0], shot.cursor[1] + len(rows) - len(shot.rows))
    reading = read(shown(rows, cursor=cursor, cursor_visible=shot.cursor_visible), rules_of(case), NOW)

    assert reading.menu is None or case.agent == "scripted"


@pytest.mark.parametrize("program", shipped().programs)
def test_a_cleared_screen_has_no_state(program: str) -> None:
    chosen = shipped().rules(program)
    assert chosen is not None
    for text in ("", "\n" * 50, "\x1b[m\n" * 50, " " * 500):
        assert "unclear" == read(captured(text, cursor=(0, 0)), chosen.rules).state


def made_for(source: str) -> list[str]:
    """Rows that a pattern has to look through long, as far as that can be told from its letters."""
    letters = sorted({letter for letter in re.sub(r"\\.|[\[\](){}*+?|^$.]", "", source) if letter.strip()}) or ["a"]
    runs = [letter * 1000 for letter in (*letters[:6], " ", "a", "1", "─", "│")]
    mixed = ["".join(letters) * (1000 // len(letters)), (" a" * 500), ("a " * 500), "  " * 499 + "x"]
    return [row[:1000] for row in (*runs, *mixed, *(f"❯ {letters[0] * 900} x" for _ in range(1)))]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("program", shipped().programs)
def test_no_row_of_a_thousand_columns_makes_a_long_search(program: str) -> None:
    """The timeout is the net: patterns that go back and forth would take for ever."""
    for rules in (rules for rules in shipped().all if program in rules.programs):
        for place, source, _ in patterns(rules.file):
            rows = made_for(source)
            read(shown(rows * (40 // len(rows) + 1), cursor=(0, 5)), rules)
            for row in rows:
                assert len(TerminalScreen(shown([row]).rows).rows[0].pattern_text) <= LONGEST + 1, place


def test_escape_sequences_and_controls_are_no_text() -> None:
    row = "\x1b]0;title\x07\x1b[31;1mred\x1b[0m\x1b[2J\x00\x07 and\u202e back"

    assert "red and\ufffd back" == captured(row).rows[0].text


@pytest.mark.parametrize("text", ["{0}{x!r}%s%(x)s", "[bold]x[/]", "(?P<a>", "$(touch x)", "#{pane_id}"])
def test_nothing_on_a_screen_is_a_pattern_a_format_or_markup(text: str) -> None:
    case = next(case for case in DIALOGS if case.id == "claude/2.1.332/permission-bash")
    rows = [row.replace("touch perm.txt", text) for row in plain_rows(case)]
    menu = again(case, rows).menu

    assert menu is not None
    assert text in menu.text
    assert {Decision.ALLOW, Decision.DENY} <= set(menu.keys)


@pytest.mark.parametrize("width", [1, 7, 60, 200, 5000])
def test_a_screen_of_any_width_and_height_is_read(width: int) -> None:
    for rows in (1, 3, 1000):
        text = "\n".join((string.printable * 60).replace("\n", "")[at : at + width] for at in range(rows))
        for rules in shipped().all:
            assert not read(captured(text, cursor=(width, rows - 1)), rules, NOW).menu
