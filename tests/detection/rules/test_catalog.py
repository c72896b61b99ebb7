"""The files that are there: a person's own go before the shipped ones, and count as soon as they change."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.detection.reader import read
from kasmon.detection.rules.catalog import RuleCatalog, shipped, short_name
from kasmon.detection.terminal_screen import captured

OWN = """\
program = "{program}"
versions = "{versions}"

[[rule]]
name = "{name}"
state = "idle"
all = ['^ready$']
"""


def put(folder: Path, file: str, *, program: str = "vim", versions: str = "", name: str = "mine") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / file
    path.write_text(OWN.format(program=program, versions=versions, name=name))
    return path


def rule(catalogue: RuleCatalog, program: str = "vim", version: str = "") -> str | None:
    """The rule that holds on the screen `ready`."""
    chosen = catalogue.rules(program, version)
    return None if chosen is None else read(captured("ready\n"), chosen.rules).rule


def test_all_shipped_files_are_valid() -> None:
    assert () == shipped().problems
    assert {"amp", "bash", "claude", "codex", "gemini", "opencode", "scripted", "shell"} <= set(shipped().programs)


def test_a_catalogue_for_one_program_has_the_same_rules_for_it(tmp_path: Path) -> None:
    for program in shipped().programs:
        catalogue, everything = RuleCatalog([tmp_path], program), shipped().rules(program)
        chosen = catalogue.rules(program)

        assert chosen is not None
        assert everything is not None
        assert (everything.rules.name, everything.note) == (chosen.rules.name, chosen.note)
        assert len(catalogue.all) < len(shipped().all)


def test_a_new_agent_is_one_file(tmp_path: Path) -> None:
    catalogue = RuleCatalog([tmp_path])
    assert rule(catalogue) is None

    put(tmp_path, "vim.toml")

    assert catalogue.reload()
    assert "mine" == rule(catalogue)
    assert not catalogue.reload()


def test_a_changed_file_applies_at_once(tmp_path: Path) -> None:
    put(tmp_path, "vim.toml")
    catalogue = RuleCatalog([tmp_path])

    put(tmp_path, "vim.toml", name="changed")

    assert catalogue.reload()
    assert "changed" == rule(catalogue)


def test_a_deleted_file_does_not_apply_any_more(tmp_path: Path) -> None:
    path = put(tmp_path, "vim.toml")
    catalogue = RuleCatalog([tmp_path])

    path.unlink()

    assert catalogue.reload()
    assert catalogue.rules("vim") is None


def test_the_last_good_version_of_a_broken_file_stays(tmp_path: Path) -> None:
    path = put(tmp_path, "vim.toml")
    catalogue = RuleCatalog([tmp_path])

    path.write_text('program = "vim"\n[[rule]]\nname = "x"\nstate = "bored"\n')

    assert catalogue.reload()
    assert "mine" == rule(catalogue)
    assert [(str(path), 4, "rule[0].state")] == [(told.file, told.line, told.key) for told in catalogue.problems]

    put(tmp_path, "vim.toml", name="mended")

    assert catalogue.reload()
    assert "mended" == rule(catalogue)
    assert () == catalogue.problems


def test_a_file_that_was_never_valid_hides_no_shipped_one(tmp_path: Path) -> None:
    put(tmp_path, "claude.toml", program="claude").write_text("program = 'claude'\nrule = 7\n")
    catalogue = RuleCatalog([tmp_path])

    chosen = catalogue.rules("claude", "2.1.332")

    assert chosen is not None
    assert "claude/screen.toml" == short_name(chosen.rules.name)
    assert str(tmp_path) not in chosen.rules.name
    assert 1 == len(catalogue.problems)


def test_a_users_own_file_has_priority_over_the_shipped_one_for_its_versions_only(tmp_path: Path) -> None:
    put(tmp_path, "mine.toml", program="claude", versions=">=3")
    catalogue = RuleCatalog([tmp_path])

    assert "mine" == rule(catalogue, "claude", "3.0.1")
    assert "" == rule(catalogue, "claude", "2.1.332")


def test_the_file_for_the_newest_versions_has_priority(tmp_path: Path) -> None:
    put(tmp_path, "a.toml", versions=">=1", name="old")
    put(tmp_path, "b.toml", versions=">=2", name="new")
    catalogue = RuleCatalog([tmp_path])

    assert ["old", "new", "new"] == [rule(catalogue, version=version) for version in ("1.9", "2.0", "7")]


@pytest.mark.parametrize(
    ("version", "name", "note"),
    [
        ("", "new", "its version is not known, so it is read as >=2"),
        ("nightly", "new", "its version is not known, so it is read as >=2"),
        ("0.9", "old", "there are no screen rules for 0.9, so it is read as >=1, <2"),
        ("1.5", "old", ""),
    ],
)
def test_an_unknown_version_is_read_by_the_nearest_file_and_that_is_reported(
    tmp_path: Path, version: str, name: str, note: str
) -> None:
    put(tmp_path, "a.toml", versions=">=1, <2", name="old")
    put(tmp_path, "b.toml", versions=">=2", name="new")
    chosen = RuleCatalog([tmp_path]).rules("vim", version)

    assert chosen is not None
    assert note == chosen.note
    assert name == read(captured("ready\n"), chosen.rules).rule


def test_which_claude_is_read_by_which_file() -> None:
    files = {}
    for version in ("2.1.197", "2.1.294", "2.1.295", "2.1.330", "2.2.0"):
        chosen = shipped().rules("claude", version)
        assert chosen is not None
        files[version] = Path(chosen.rules.name).stem

    assert ["screen-2.1.197"] * 2 + ["screen"] * 3 == list(files.values())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_path_that_is_not_a_regular_file_is_reported_without_waiting(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "a.toml")
    put(tmp_path, "vim.toml")
    catalogue = RuleCatalog([tmp_path])

    assert "mine" == rule(catalogue)
    assert [str(tmp_path / "a.toml")] == [told.file for told in catalogue.problems]
    assert not catalogue.reload()
