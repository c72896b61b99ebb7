"""`kasmon explain --screen`: what a screen says, by which rule, what else holds; and it becomes a golden folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.line import Line
from tests.screens.golden import FOLDER, load

ASKS = FOLDER / "claude" / "2.1.330" / "permission-bash"
CLAUDE = ("--agent", "claude", "--agent-version", "2.1.330")


@pytest.fixture
def kasmon() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def test_it_says_the_state_the_rule_the_text_and_what_lost(kasmon: Line) -> None:
    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE)

    assert (0, "") == (done.code, done.err)
    lines = done.out.splitlines()
    assert "asking (permission), says its screen" == lines[0]
    assert "  screen    asking, rule 'permission' of claude.toml" in lines
    assert "  choice    * allow: Yes" in lines
    assert "  choice    deny: No" in lines
    assert "  also      'some-prompt' holds, and would say asking" in lines


def test_for_programs_it_is_one_object(kasmon: Line) -> None:
    told = kasmon.json("explain", "--screen", str(ASKS), *CLAUDE)["explanation"]

    assert ("asking", "screen", "permission") == (told["state"], told["source"], told["asking"])
    assert ["screen"] == [signal["source"] for signal in told["evidence"]]
    assert ("permission", "claude.toml", None) == tuple(told["screen"][key] for key in ("rule", "file", "note"))
    assert {"allow": "1", "always": "2", "deny": "4", "cancel": "\x1b"} == told["screen"]["menu"]["keys"]
    assert [] == told["transitions"]


def test_a_title_has_a_word_of_its_own(kasmon: Line) -> None:
    screen = str(FOLDER / "codex" / "0.169.0" / "working-text" / "screen.txt")

    told = kasmon.json(
        "explain", "--screen", "-", "--agent", "codex", "--title", "⠙ work", given=Path(screen).read_text()
    )
    assert ("working", "title") == (told["explanation"]["state"], told["explanation"]["source"])

    told = kasmon.json("explain", "--screen", screen, "--agent", "codex", "--title", "work")
    assert ("unsure", "its screen says idle or working") == (told["explanation"]["state"], told["explanation"]["why"])


def test_a_version_that_nobody_knows_is_said(kasmon: Line) -> None:
    done = kasmon("explain", "--screen", str(ASKS), "--agent", "claude")

    assert "  rules     its version is not known, so it is read as >=2.1.295" in done.out.splitlines()


def test_a_case_is_exported_as_a_golden_folder(kasmon: Line) -> None:
    folder = kasmon.home / "out" / "claude" / "2.1.330" / "mine"

    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE, "--export", str(folder))

    assert 0 == done.code
    assert "look at it before you show it to anybody" in done.err
    original, exported = load(ASKS), load(folder)
    assert original.expected == exported.expected
    assert original.shot.text == exported.shot.text
    assert original.shot.facts == exported.shot.facts
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_an_export_overwrites_nothing(kasmon: Line) -> None:
    folder = kasmon.home / "out"
    folder.mkdir()
    (folder / "title.txt").write_text("mine\n")

    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE, "--export", str(folder))

    assert 4 == done.code
    assert "title.txt' is there already" in done.err
    assert ["title.txt"] == [path.name for path in folder.iterdir()]


def test_a_persons_own_file_counts_and_a_broken_one_is_told(kasmon: Line) -> None:
    folder = kasmon.places.config / "screens"
    folder.mkdir(parents=True)
    (folder / "vim.toml").write_text('program = "vim"\n[[rule]]\nname = "all"\nstate = "working"\n')
    (folder / "bad.toml").write_text('program = "bad"\n[[rule]]\nname = "all"\nstate = "busy"\n')

    done = kasmon("explain", "--screen", "-", "--agent", "vim", given="hello\n")

    assert 0 == done.code
    assert done.out.startswith("working, says its screen")
    assert "bad.toml:4 at 'rule[0].state': 'busy' is no state." in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--screen", "/nowhere", "--agent", "claude"], 3, "there is no file '/nowhere'"),
        (["--screen", "/", "--agent", "claude"], 3, "there is no file '/screen.txt'"),
        (["--screen", str(ASKS), "--agent", "emacs"], 2, "nobody knows the screens of 'emacs'. Known: amp, bash,"),
        (["--screen", str(ASKS)], 2, "a screen is explained for one agent"),
        (["fix-auth", "--screen", str(ASKS), "--agent", "claude"], 2, "a screen is explained for one agent"),
        (["--screen", "/dev/zero", "--agent", "claude"], 2, "is larger than 1024 KB"),
    ],
)
def test_what_cannot_be_explained_is_told(kasmon: Line, arguments: list[str], code: int, told: str) -> None:
    done = kasmon("explain", *arguments)

    assert code == done.code
    assert told in done.err
    assert "Traceback" not in done.err


def test_nothing_on_a_screen_reaches_the_terminal_as_it_is(kasmon: Line) -> None:
    hostile = "\x1b]52;c;eA==\x07\x1b[2J\x1b[31mDo you\x07 want\u202e to?\n"

    done = kasmon("explain", "--screen", "-", "--agent", "amp", "--title", "\x1b]0;x\x07", given=hostile)

    assert 0 == done.code
    assert not set("\x1b\x07\u202e") & set(done.out + done.err)
