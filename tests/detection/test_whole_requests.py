"""Consent is offered only to a request of which all is known: by a proof in its screen file, or by a better source."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.backends.tmux.evidence.process_evidence import call_of
from kasmon.backends.tmux.input.full_view import extract_lines
from kasmon.detection.menus.answer import decisions, options
from kasmon.detection.menus.choices import ScreenMenu, completed, shows, squeezed
from kasmon.detection.reader import read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.rules.file import ScreenRules, parse
from kasmon.detection.terminal_screen import TerminalScreen, shown
from kasmon.model.permission import CONSENTS, RequestKind
from tests.support.detection.derived_screens import plain
from tests.support.detection.expected import reading_of, screen_of
from tests.support.detection.golden import FOLDER, Case, cases, load
from tests.support.detection.scenes.studio import steps

CASES = list(cases())
LONG = [
    "claude/2.1.332/fetch-long",
    "claude/2.1.332/permission-long",
    "codex/0.171.0/permission-long",
    "gemini/0.61.0/permission-long",
    "opencode/1.18.33/permission-long",
]
"""A command of forty steps on the screen of each agent."""
VIEWS = [
    "codex/0.171.0/permission-long-fits",
    "gemini/0.61.0/permission-long-fits",
    "opencode/1.18.33/permission-long-fits",
]
"""One that the agent's own view shows whole: the menu, and the view (`-view`)."""
COMMANDS = [case for case in CASES if case.name in ("permission-bash", "permission-exec")]


def rules_of(case: Case) -> ScreenRules:
    chosen = shipped().rules(case.agent, case.version)
    assert chosen is not None
    return chosen.rules


def menu_of(case: Case) -> ScreenMenu:
    found = reading_of(case).menu
    assert found is not None
    return found


def offered(menu: ScreenMenu) -> set[str]:
    """The consents that *menu* takes."""
    return {*CONSENTS.intersection(decisions(menu)), *(choice.label for choice in options(menu))}


def rows_of(case: Case) -> list[str]:
    return [plain(row) for row in case.shot.text.rstrip("\n").split("\n")]


def seen(case: Case, rows: list[str]) -> ScreenMenu | None:
    """The menu on *rows* in place of those of *case*; a choice that has no other mark than its ground keeps none."""
    return read(shown(rows, cursor_visible=False), rules_of(case)).menu


@pytest.mark.parametrize("name", LONG)
def test_a_command_that_the_dialog_shows_in_part_cannot_be_allowed(name: str) -> None:
    menu = menu_of(load(FOLDER / name))

    assert not menu.is_whole
    assert set() == offered(menu)


@pytest.mark.parametrize("end", [0, 1], ids=["upper", "lower"])
@pytest.mark.parametrize(
    "name",
    [
        *(f"2.1.332/{name}" for name in ("permission-bash", "permission-fetch", "permission-no-first", "plan")),
        "2.1.197/permission-edit",
    ],
)
def test_one_frame_row_around_claudes_request_proves_nothing(name: str, end: int) -> None:
    """A plan is scrolled in its frame, and its text may end where the frame would."""
    case = load(FOLDER / "claude" / name)
    rows = rows_of(case)
    at = [at for at, row in enumerate(rows) if "╌" * 10 in row][end]
    menu = seen(case, [*rows[:at], "   and more", *rows[at + 1 :]])

    assert offered(menu_of(case))
    assert menu is None or set() == offered(menu)


def test_a_command_of_an_old_claude_is_whole_below_its_heading_only() -> None:
    case = load(FOLDER / "claude/2.1.197/permission-bash")
    menu = seen(case, [row.replace(" Bash command", "   Bash command") for row in rows_of(case)])

    assert offered(menu_of(case))
    assert menu is not None
    assert set() == offered(menu)


def test_a_plan_taller_than_its_frame_cannot_be_allowed() -> None:
    menu = menu_of(load(FOLDER / "claude/2.1.332/plan-long"))

    assert not menu.is_whole
    assert not CONSENTS.intersection(decisions(menu))


@pytest.mark.parametrize("name", [name for name in LONG if "gemini" not in name])
def test_the_shown_text_distinguishes_its_call_from_every_other_that_differs_there(name: str) -> None:
    menu = menu_of(load(FOLDER / name))

    assert shows(menu, steps())
    assert not shows(menu, steps().replace("step 11", "step eleven") if menu.has_start is False else f"true; {steps()}")
    assert not shows(menu, "touch end-a.txt")


@pytest.mark.parametrize("name", LONG)
def test_with_the_whole_text_a_request_can_be_allowed_and_another_end_is_another_request(name: str) -> None:
    menu = menu_of(load(FOLDER / name))
    one, other = completed(menu, steps(end="a")), completed(menu, steps(end="b"))

    assert offered(one)
    assert one.digest != other.digest
    assert steps(end="a") in one.text


PATCH = "*** Begin Patch\n*** Update File: {}\n@@\n-one\n+*** Update File: b.txt\n*** End Patch"


@pytest.mark.parametrize("agent", ["codex/0.171.0", "opencode/1.18.33"])
def test_a_request_that_names_only_a_file_is_about_a_call_with_that_file_in_a_field(agent: str) -> None:
    menu = menu_of(load(FOLDER / agent / "permission-edit"))

    def is_about(given: object) -> bool:
        call = call_of(given)
        assert call is not None
        return shows(menu, call.text, call.values)

    assert is_about({"filePath": menu.named, "content": "one"})
    assert is_about({"filePath": f"/work/{menu.named}", "content": "one"})
    assert is_about({"command": PATCH.format(menu.named)})
    assert not is_about({"command": f"cat {menu.named}"})
    assert not is_about({"command": "cat", "file": menu.named})
    assert not is_about({"filePath": f"{menu.named}.bak", "content": menu.named + " and more"})
    assert not is_about({"filePath": f"not{menu.named}"[1:], "content": f"\nfilePath: {menu.named}"})
    assert not is_about({"command": PATCH.format("b.txt").replace("one", menu.named)})


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_texts_that_differ_in_any_part_have_different_digests(one: str, other: str) -> None:
    menu = menu_of(load(FOLDER / LONG[0]))

    assert (one == other) is (completed(menu, one).digest == completed(menu, other).digest)


@pytest.mark.parametrize("case", [case for case in COMMANDS if case.agent != "opencode"], ids=lambda case: case.id)
def test_two_commands_that_differ_in_any_character_that_is_shown_have_different_digests(case: Case) -> None:
    rows, before = rows_of(case), None
    at = max(at for at, row in enumerate(rows) if re.search(r"touch \S*(?:perm|x1)", row) and "go %%" not in row)
    before = seen(case, rows)
    assert before is not None
    for column, character in enumerate(rows[at]):
        if character.isalnum():
            changed = f"{rows[at][:column]}Q{rows[at][column + 1 :]}"
            after = seen(case, [*rows[:at], changed, *rows[at + 1 :]])
            assert after is None or not offered(after) or after.digest != before.digest


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.id)
def test_a_short_command_is_proven_whole_by_the_screen_alone(case: Case) -> None:
    assert offered(menu_of(case))


@pytest.mark.parametrize("agent", ["claude/2.1.332", "codex/0.171.0", "gemini/0.61.0", "opencode/1.18.33"])
def test_a_command_with_a_possibly_wrapped_row_can_be_allowed_by_a_record_only(agent: str) -> None:
    """Whether a blank or the end of a line is there is not visible, and it makes another command."""
    menu = menu_of(load(FOLDER / agent / "permission-narrow"))
    one, other = completed(menu, "tee log"), completed(menu, "tee\nlog")

    assert not menu.is_whole
    assert set() == offered(menu)
    assert offered(one)
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("codex/0.171.0/permission-long-fits", "x" * 112),
        ("gemini/0.61.0/permission-long-fits", f"│ │ {'x' * 112} │ │"),
        ("opencode/1.18.33/permission-long-fits", f"  ┃  {'x' * 112}"),
    ],
)
def test_a_view_with_a_possibly_wrapped_row_shows_no_text_for_certain(name: str, row: str) -> None:
    view = load(FOLDER / f"{name}-view")
    rule = rules_of(view).menus["permission"]
    rows = rows_of(view)
    at = next(at for at, shown_row in enumerate(rows) if "step 9 of forty" in shown_row)

    assert extract_lines(shown(rows).rows, rule) is not None
    assert extract_lines(shown([*rows[:at], row, *rows[at + 1 :]]).rows, rule) is None


def test_no_menu_can_be_allowed_without_a_proof_in_its_file() -> None:
    """Also not one of a person's own file, and not one that a later version adds."""
    for case in (case for case in CASES if reading_of(case).menu is not None):
        file = rules_of(case).file
        bare = [msgspec.structs.replace(menu, whole=()) for menu in file.menu]
        rules = ScreenRules(msgspec.structs.replace(file, menu=tuple(bare)), "bare")
        menu = read(screen_of(case), rules).menu
        assert menu is not None
        assert set() == offered(menu), case.id


def test_every_menu_that_asks_for_permission_names_its_proof() -> None:
    for rules in shipped().all:
        for menu in rules.file.menu:
            assert menu.whole, (rules.name, menu.name)
            if menu.kind is RequestKind.PERMISSION and "scripted" not in rules.name:
                assert any(proof.rows or proof.all or proof.frame for proof in menu.whole), (rules.name, menu.name)


def test_a_command_that_repeats_the_beginning_of_its_dialog_hides_nothing() -> None:
    """Codex: what stands above the second beginning would be shown nowhere."""
    case = load(FOLDER / "codex/0.171.0/permission-exec")
    rows = rows_of(case)
    at = rows.index("  $ touch ../x1")
    false = ["  $ rm -rf ~", "  Would you like to run the following command?", "", "  $ ls"]
    menu = seen(case, [*rows[:at], *false, *rows[at + 1 :]])

    assert menu is not None
    assert set() == offered(menu)


def test_a_dialog_of_opencode_at_its_maximum_height_is_not_whole() -> None:
    """It cuts without a mark: only one that could be higher has all of it. Blank rows at its end prove nothing."""
    case = load(FOLDER / "opencode/1.18.33/permission-long")
    blank = re.sub(r"(step [5-7] of forty &&)", lambda match: " " * len(match[0]), case.shot.text)
    blank = blank.replace("echo" + " " * 22, " " * 26)
    menu = read(screen_of(case._replace(shot=case.shot._replace(text=blank))), rules_of(case)).menu

    assert menu is not None
    assert set() == offered(menu)


@pytest.mark.parametrize("above", [True, False], ids=["above the question", "below the choices"])
def test_the_remaining_time_is_no_part_of_the_request(above: bool) -> None:
    """Claude counts down to `auto-continue` where its user has set it to."""
    case = load(FOLDER / "claude/2.1.332/question")
    rows = rows_of(case)
    at = rows.index("Which colour?") if above else next(at for at, row in enumerate(rows) if "Enter to select" in row)

    def with_left(seconds: int) -> ScreenMenu | None:
        return seen(case, [*rows[:at], f"auto-continue in {seconds}s · any key to stay", *rows[at:]])

    first, second = with_left(20), with_left(9)
    assert first is not None
    assert second is not None
    assert (first.digest, first.text) == (second.digest, second.text)
    assert {"red", "blue"} <= {choice.label for choice in options(first)}


@pytest.mark.parametrize("name", VIEWS)
def test_the_agents_own_view_shows_the_whole_text(name: str) -> None:
    menu, view = load(FOLDER / name), load(FOLDER / f"{name}-view")
    stands = menu_of(menu)
    rule = rules_of(menu).menus[stands.name]

    assert not stands.is_whole
    lines = extract_lines(screen_of(view).rows, rule)
    assert lines is not None
    count = len(re.findall(r"step (\d+)", "\n".join(lines)))
    assert squeezed(steps(count)) in squeezed("\n".join(lines))
    assert extract_lines(screen_of(menu).rows, rule) is None


def test_a_row_of_text_that_looks_like_the_end_of_a_view_is_no_end() -> None:
    """Codex fills its view with `~`, and a command may hold such a row."""
    view = load(FOLDER / "codex/0.171.0/permission-long-fits-view")
    rule = rules_of(view).menus["permission"]
    rows = rows_of(view)
    rows[10] = "~"

    assert extract_lines(TerminalScreen(shown(rows).rows).rows, rule) is None


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("codex/0.171.0/permission-long-fits", "─" * 10),
        ("opencode/1.18.33/permission-long-fits", "  ┃   Allow once   x"),
        ("gemini/0.61.0/permission-long-fits", f"│ ╰{'─' * 10}"),
    ],
)
def test_a_row_of_text_that_looks_like_the_row_below_a_view_hides_nothing_under_it(name: str, row: str) -> None:
    """All that the dialog itself shows stands above that row: only what the view shows could tell."""
    view = load(FOLDER / f"{name}-view")
    rule = rules_of(view).menus["permission"]
    rows = rows_of(view)
    end = max(at for at, shown_row in enumerate(rows) if "touch end-a" in shown_row)

    assert extract_lines(shown(rows).rows, rule) is not None
    assert extract_lines(shown([*rows[:end], row, *rows[end:]]).rows, rule) is None


PROOF = """
program = "vim"
[[region]]
name = "box"
from = '^BOX'
[[rule]]
name = "asks"
state = "asking"
menu = "asks"
[[menu]]
name = "asks"
kind = "permission"
in = "box"
question = '^Run'
choice = '^(?P<mark>>)? *(?P<label>Yes|No)$'
[menu.answers]
allow = '^Yes$'
deny = '^No$'
"""
SCREEN = ["BOX", "Run", "ls", "", "> Yes", "  No"]


@pytest.mark.parametrize(
    ("proof", "holds"),
    [
        ("", False),
        ("[[menu.whole]]", True),
        ("[[menu.whole]]\nrows = 6", True),
        ("[[menu.whole]]\nrows = 5", False),
        ("[[menu.whole]]\nlast = '^$'", True),
        ("[[menu.whole]]\nlast = '^ls$'", False),
        ("[[menu.whole]]\nall = ['^Run', '^ls']", True),
        ("[[menu.whole]]\nall = ['^Run', '^No']", False),
        ("[[menu.whole]]\nframe = '^ls|^Run'", True),
        ("[[menu.whole]]\nframe = '^ls'", False),
        ("[[menu.whole]]\nrows = 5\n[[menu.whole]]\nlast = '^$'", True),
    ],
)
def test_a_proof_holds_if_all_of_its_conditions_do(proof: str, holds: bool) -> None:
    menu = read(shown(SCREEN, cursor_visible=False), parse(PROOF + proof)).menu

    assert menu is not None
    assert holds is menu.is_whole


LINES = r"""
[[menu.whole]]
[menu.call]
begins = '^Run'
row = '^(?P<text>.*)$'
lines = '^Run'
"""


@pytest.mark.parametrize(
    ("lines", "holds"),
    [
        (["echo one"], True),
        (["echo one", "echo two"], True),
        (["echo one", "", "echo two"], True),
        (["echo one", "x" * 29 + " y"], True),
        (["echo one", "x" * 30], False),
        (["echo one", "é" * 15], False),
        (["x" * 38, "y"], False),
        (["x" * 38, "", "y"], False),
        (["x" * 38], True),
        (["echo one \\", "echo two"], False),
        (["echo one \\"], False),
    ],
)
def test_a_row_ends_a_line_for_certain_if_the_next_word_had_space(lines: list[str], holds: bool) -> None:
    """Behind a backslash a blank has an effect, and is not visible."""
    rows = [f"BOX {'-' * 36}", "Run", *lines, "", "> Yes", "  No"]
    menu = read(shown(rows, cursor_visible=False), parse(PROOF + LINES)).menu

    assert menu is not None
    assert holds is menu.is_whole
