"""`kasmon agents`: a foreign folder is data, checked first. How to add an agent, docs/agents.md shows: its commands run
in tests/cli/test_documented_commands.py."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.agents.catalog import SHIPPED
from kasmon.cli.agents.redacted_screen import redacted
from tests.support.cli.cli_runner import Cli


def folder_of(kasmon: Cli) -> Path:
    """A folder of an agent that is in order."""
    folder = kasmon.home / "parrot"
    case = folder / "1.0" / "idle"
    case.mkdir(parents=True)
    (folder / "profile.toml").write_text('title = "Parrot"\n[variables]\nown = ["PARROT_"]\n')
    (folder / "screen.toml").write_text('program = "parrot"\n[[rule]]\nname = "a"\nstate = "idle"\nall = ["^ready"]\n')
    (case / "screen.txt").write_text("ready\n")
    (case / "title.txt").write_text("\n")
    (case / "expected.toml").write_text('state = "idle"\n')
    return folder


def test_a_folder_is_shown_and_copied_once(kasmon: Cli) -> None:
    folder = folder_of(kasmon)

    asked = kasmon("agents", "add", str(folder))
    assert (2, True) == (asked.code, "Pass --yes." in asked.err)
    assert not (kasmon.paths.agents / "parrot").exists()

    done = kasmon("agents", "add", str(folder), "--yes")
    assert 0 == done.code, done.err
    assert "variables it gets: PARROT_" in done.out
    assert "1 of 1 recorded screens read as expected" in kasmon("agents", "test", "parrot").out

    again = kasmon("agents", "add", str(folder), "--yes")
    assert (4, True) == (again.code, "already exists" in again.err)


def link_outside(folder: Path) -> None:
    (folder / "1.0" / "idle" / "screen.txt").unlink()
    (folder / "1.0" / "idle" / "screen.txt").symlink_to("/etc/passwd")


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (link_outside, "is a link"),
    "a linked folder": (lambda folder: (folder / "2.0").symlink_to("/etc"), "is a link"),
    "a pipe": (lambda folder: os.mkfifo(folder / "README.md"), "is a link, or no file"),
    "a program": (lambda folder: (folder / "setup.py").write_text("x"), "does not belong"),
    "an unknown key": (lambda folder: (folder / "profile.toml").write_text('run = "rm"'), "at 'run'"),
    "a version without a bound": (
        lambda folder: (folder / "profile.toml").write_text('[start]\nterminal_versions = "2"'),
        "terminal_versions",
    ),
    "a slow pattern": (
        lambda folder: (folder / "screen.toml").write_text(
            'program = "parrot"\n[[rule]]\nname = "a"\nstate = "idle"\nall = ["(a+)+$"]\n'
        ),
        "it repeats a group",
    ),
    "another program's rules": (
        lambda folder: (folder / "screen.toml").write_text('program = "claude"\n'),
        "it is for 'claude', not 'parrot'",
    ),
    "a huge file": (lambda folder: (folder / "README.md").write_bytes(b"x" * (33 << 20)), "32 MB"),
    "a case without a state": (
        lambda folder: (folder / "1.0" / "idle" / "expected.toml").write_text("x = 1"),
        "which state",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), SPOILT.values(), ids=SPOILT)
def test_an_invalid_folder_is_refused_whole(kasmon: Cli, spoil: Callable[[Path], object], words: str) -> None:
    folder = folder_of(kasmon)
    spoil(folder)

    done = kasmon("agents", "add", str(folder), "--yes")

    assert done.code
    assert words in done.err
    assert not (kasmon.paths.agents / "parrot").exists()


def test_a_screen_that_is_read_differently_than_expected_is_reported_with_its_rule(kasmon: Cli) -> None:
    folder = folder_of(kasmon)
    (folder / "1.0" / "idle" / "screen.txt").write_text("say 12 words\n")
    assert 0 == kasmon("agents", "add", str(folder), "--yes").code

    done = kasmon("agents", "test", "parrot")

    assert 1 == done.code
    assert "1.0/idle: state 'idle' was expected, 'unclear' is read (no rule)" in done.out
    assert r"all = ['^\s*say \d+ words\s*$']" in done.out
    told = json.loads(kasmon("agents", "test", "parrot", "--json").out)
    assert ["idle"] == [each["expected"] for each in told["differences"]]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SHIPPED.glob("*/profile.toml")))
def test_the_recorded_screens_of_a_shipped_agent_read_as_expected(kasmon: Cli, name: str) -> None:
    done = kasmon("agents", "test", name)

    assert 0 == done.code, done.out


def test_a_folder_with_a_screen_becomes_a_recorded_one_by_one_command(kasmon: Cli) -> None:
    case = folder_of(kasmon) / "1.0" / "idle"

    done = kasmon("agents", "record", "parrot", str(case), "calm", "--state", "idle", "--agent-version", "1.1")

    assert 0 == done.code, done.err
    assert "ready\n" == (kasmon.paths.agents / "parrot" / "1.1" / "calm" / "screen.txt").read_text()
    again = kasmon("agents", "record", "parrot", str(case), "calm", "--state", "idle", "--agent-version", "1.1")
    assert 4 == again.code


def test_a_recorded_screen_has_no_token_and_no_home_folder_and_keeps_its_columns() -> None:
    token = "sk-ant-api03-" + "a1B2" * 12
    home = str(Path.home())

    row = redacted(f"│ {home} {token} │")

    assert len(f"│ {home} {token} │") == len(row)
    assert token not in row
    assert home not in row
