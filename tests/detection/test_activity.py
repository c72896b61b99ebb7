"""The last message or tool call is told apart from an agent's chrome, on real screens of real agents."""

import pytest

from kasmon.detection.prompt_box import composer
from kasmon.detection.reader import find_last_activity, has_messages
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.terminal_screen import captured
from tests.support.detection.expected import reading_of, screen_of
from tests.support.detection.golden import FOLDER, Case, cases, load

CHROME = (
    "esc to interrupt",
    "esc to cancel",
    "esc interrupt",
    "shift+tab to cycle",
    "for shortcuts",
    "/effort",
    "Type your message",
    "Ask Codex",
    "ctrl+p commands",
    "Build · Stub",
    "Enter sends",
    "Cogitated for",
    "Worked for",
    "Claude Code v",
    "Tip:",
    "QUEUED",
    "Queued",
)


def activity_of(case: Case) -> str | None:
    chosen = shipped().rules(case.agent, "" if case.version == "any" else case.version)
    if chosen is None or not has_messages(chosen.rules):
        return None
    return find_last_activity(screen_of(case), reading_of(case).composer, chosen.rules)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("claude/2.1.332/idle", ""),
        ("claude/2.1.332/finished", "modelstub: ok"),
        ("claude/2.1.332/working-queued", "two"),
        ("claude/2.1.332/working-tool", "Running a scripted command"),
        ("claude/2.1.332/permission-refused", "Did not run 1 call"),
        ("claude/2.1.332/idle-slash", ""),
        ("claude/2.1.197/finished", "finished"),
        ("codex/0.171.0/idle", ""),
        ("codex/0.171.0/finished", "modelstub: ok"),
        ("codex/0.171.0/working-queued", "modelstub: ok"),
        ("codex/0.171.0/working-text", "word0 word1 word2 word3"),
        ("gemini/0.61.0/finished", "modelstub: ok"),
        ("gemini/0.61.0/working-tool", "Shell python3 -c 'import time; time.sleep(30)'"),
        ("gemini/0.61.0/working-queued", "word0 word1 word2 word3"),
        ("opencode/1.18.33/finished", "modelstub: ok"),
        ("opencode/1.18.33/working-tool", "$ python3 -c 'import time; time.sleep(30)'"),
        ("opencode/1.18.33/working-wide", "$ rm -rf build && git push --force origin main | tee a-log-with-a-name"),
        ("amp/0.0.1790142911-g7618fb/start-login", ""),
        ("scripted/any/finished", "all is well"),
        ("scripted/any/idle", ""),
    ],
)
def test_a_real_screen_shows_its_last_message_or_tool_call(case: str, expected: str) -> None:
    assert expected == activity_of(load(FOLDER / case))


@pytest.mark.parametrize("program", ["bash", "zsh", "sh"])
def test_a_shell_shows_its_last_row(program: str) -> None:
    chosen = shipped().rules(program, "")

    assert chosen is not None
    assert not has_messages(chosen.rules)


def test_no_screen_of_any_agent_shows_its_chrome() -> None:
    shown = {case.id: activity_of(case) or "" for case in cases()}

    assert {} == {case: text for case, text in shown.items() if any(chrome in text for chrome in CHROME)}


def test_a_long_answer_is_shown_by_its_last_paragraph() -> None:
    rules = shipped().rules("claude", "2.1.332")
    assert rules is not None
    rows = ["● The first paragraph", "  goes over two rows.", "", "  The second one", "  too.", ""]
    rows += ["─" * 40, "❯ ", "─" * 40, "  ⏵⏵ auto mode on (shift+tab to cycle)"]
    shot = captured("\n".join(rows), cursor=(2, 7))

    assert "The second one too." == find_last_activity(shot, composer(shot, rules.rules.file.composer), rules.rules)
