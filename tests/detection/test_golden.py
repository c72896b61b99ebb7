"""Real screens of real agents are read as what they are; every rule of every file is needed by one of them."""

import json
import re
from pathlib import Path

import pytest

from kasmon.detection.reader import build_reading_table, read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.rules.schema import UNCLEAR
from kasmon.detection.terminal_screen import captured
from tests.support.detection.confusion_matrix import Judged, confused, golden, live, table
from tests.support.detection.expected import reading_of, screen_of
from tests.support.detection.golden import Case, cases
from tests.support.detection.record import AGENTS, find_recorder
from tests.support.detection.scenes.more import SCENES

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_a_real_screen_has_its_true_state(case: Case) -> None:
    """`reads` in a golden folder says that the screen alone cannot tell."""
    reading = reading_of(case)
    expected = {key: value for key, value in case.expected.items() if key not in ("state", "reads", "asking", "made")}
    state = case.expected.get("reads", case.expected["state"])

    assert state == reading.state
    assert state != "asking" or case.expected.get("asking", "") == (reading.asking or "")
    assert expected == build_reading_table(reading)


def test_every_agent_with_recorded_screens_has_a_recorder() -> None:
    assert {case.agent for case in CASES} == {*AGENTS, *SCENES}
    for agent in (*AGENTS, *SCENES):
        assert callable(find_recorder(agent))


def test_every_rule_and_every_menu_of_every_file_has_a_golden_screen() -> None:
    deciding = {(reading.file, reading.rule) for reading in map(reading_of, CASES)}
    shipped_rules = {(rules.name, rule.name) for rules in shipped().all for rule in rules.file.rule}
    assert set() == shipped_rules - deciding

    seen = {(reading.file, reading.menu.name) for case in CASES if (reading := reading_of(case)).menu}
    menus = {(rules.name, menu.name) for rules in shipped().all for menu in rules.file.menu}
    assert set() == menus - seen


def test_no_golden_screen_is_confused_with_another_state(capsys: pytest.CaptureFixture[str]) -> None:
    """By the screen alone, no verdict is wrong and sure. The table stands in the output of the test run."""
    judged = golden(CASES)
    with capsys.disabled():
        print(f"\n{table(judged)}\n")

    assert [] == confused(judged)


def test_a_certain_and_wrong_reading_is_a_failure_and_an_unsure_one_is_counted(tmp_path: Path) -> None:
    told = [("idle", "idle"), ("working", "unsure"), ("asking", "idle"), ("ended", "ended")]
    found = [{"case": f"n{n}", "expected": real, "judged": read} for n, (real, read) in enumerate(told)]
    (tmp_path / "codex.json").write_text(json.dumps({"agent": "codex", "version": "1.0", "cases": found}))

    judged = live(tmp_path)

    assert Judged("codex 1.0", "codex 1.0: n1", "working", "unsure") == judged[1]
    assert ["codex 1.0: n2: asking read as idle"] == confused(judged)
    assert "| codex 1.0 | 4 | 2 | 1 | 1 |" in table(judged)
    assert [] == live(tmp_path / "nowhere")


def test_a_screen_without_any_rule_and_an_empty_screen_are_unclear() -> None:
    unread = [case for case in CASES if not reading_of(case).rule]
    assert {UNCLEAR} == {reading_of(case).state for case in unread}

    for rules in shipped().all:
        assert UNCLEAR == read(captured(""), rules).state
        assert UNCLEAR == read(captured("\n" * 40), rules).state


MODES = {
    "claude/2.1.332/idle": "auto",
    "claude/2.1.332/permission-bash": "",
    "gemini/0.61.0/idle": "default",
    "opencode/1.18.33/idle": "build",
    "codex/0.171.0/idle": "",
}


@pytest.mark.parametrize(("case", "mode"), MODES.items())
def test_a_screen_has_the_permission_mode_of_its_footer(case: str, mode: str) -> None:
    [screen] = [each for each in CASES if each.id == case]

    assert mode == reading_of(screen).permission_mode


@pytest.mark.parametrize(
    ("row", "mode"),
    [
        ("  ⏸ manual mode on · ? for shortcuts · ← for agents", "default"),
        ("  ⏵⏵ accept edits on (shift+tab to cycle)", "acceptEdits"),
        ("  ⏸ plan mode on", "plan"),
        ("  ⏵⏵ bypass permissions on", "bypassPermissions"),
        ("  ⏵⏵ don't ask on (shift+tab to cycle) · ← for agents", "dontAsk"),
        ("  ? for shortcuts", ""),
    ],
)
def test_each_of_claudes_modes_is_identified_by_its_footer_and_nothing_above_it(row: str, mode: str) -> None:
    rules = shipped().rules("claude", "2.1.332")
    assert rules is not None
    rule, quoted = "─" * 40, "  ⏵⏵ auto mode on"
    assert mode == read(captured(f"{quoted}\n{rule}\n❯ \n{rule}\n{row}"), rules.rules).permission_mode


@pytest.mark.parametrize(
    ("row", "mode"), [(" auto-accept edits Shift+Tab to plan", "autoEdit"), (" plan Shift+Tab to manual", "plan")]
)
def test_each_of_geminis_modes_is_identified_by_the_row_above_its_box(row: str, mode: str) -> None:
    [screen] = [each for each in CASES if each.id == "gemini/0.61.0/idle"]
    text = re.sub(r"(?m)^.*Shift\+Tab to accept edits.*$", row, screen.shot.text)
    changed = screen._replace(shot=screen.shot._replace(text=text))

    assert mode == reading_of(changed).permission_mode


def test_golden_screens_are_whole() -> None:
    for case in CASES:
        assert screen_of(case).end <= case.shot.facts["rows"], case.id
