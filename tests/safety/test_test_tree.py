"""The tree of the tests, as CONTRIBUTING has it, and what no test sees.

The tree mirrors the product's, and its helpers are in `tests/support`.
"""

import ast
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import START_FILES
from tests.safety.test_names import BANNED, FILES, words
from tests.support.syntax_trees import ROOT

TESTS: Final = ROOT / "tests"
METAPHORS: Final = BANNED | {
    *(
        "ears",
        "forker",
        "heir",
        "housed",
        "inmate",
        "inmates",
        "inn",
        "lodger",
        "lodgers",
        "lodging",
        "lodgings",
        "night",
    ),
    *("nights", "paper", "papers", "puppet", "seen", "shelf", "talk", "talks", "tenant", "world", "worlds"),
}
"""Words with a private meaning, some of which helpers had as a name."""
UNCLEAR: Final = METAPHORS | {"brought", "story"}
"""Words that say of no test module what it tests."""
NOT_MIRRORED: Final = {
    "agents": "real agents, which every package is part of",
    "chaos": "a program that drives all of kasmon",
    "safety": "rules for every package",
    "support": "helpers",
}
"""Folders that have no counterpart in `kasmon`, with all below them."""


def modules(folder: Path = TESTS) -> list[Path]:
    return [path.relative_to(TESTS) for path in sorted(folder.rglob("*.py")) if path.name != "__init__.py"]


def is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name in {"conftest.py", "__main__.py"}


def names(path: Path) -> Iterator[str]:
    """The module's own name, its classes, and its fixtures."""
    if not is_test(path):
        yield path.stem
    for node in ast.walk(ast.parse((TESTS / path).read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) and not is_test(path):
            yield node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and path.name == "conftest.py":
            yield from [node.name for each in node.decorator_list if "fixture" in ast.unparse(each)]


@pytest.fixture(scope="module")
def variables_of_module() -> dict[str, str]:
    """The variables that a server gets which the tests of a module share."""
    return dict(os.environ)


def test_no_shell_of_a_test_reads_start_files_of_the_user(variables_of_module: dict[str, str]) -> None:
    """A shell that hangs in one of them makes each test that starts it hang."""
    for variables in (variables_of_module, dict(os.environ)):
        home = Path(variables["HOME"])
        assert ("/bin/sh", []) == (variables["SHELL"], [*home.iterdir()])
        assert home != Path(pwd.getpwuid(os.getuid()).pw_dir)
        assert not variables.keys() & set(START_FILES)


def test_a_folder_has_at_most_twenty_modules() -> None:
    flat = [path.parent for path in modules()]

    assert [] == [str(folder) for folder in sorted(set(flat)) if flat.count(folder) > FILES]


def test_each_folder_of_tests_is_named_as_the_folder_that_they_test() -> None:
    folders = {path.parent.as_posix() for path in modules()}
    mirrored = {folder for folder in folders if not any(f"{folder}/".startswith(f"{each}/") for each in NOT_MIRRORED)}

    assert 40 < len(mirrored)
    assert [] == sorted(folder for folder in mirrored if not (ROOT / "kasmon" / folder).is_dir())
    assert [] == [folder for folder in NOT_MIRRORED if not (TESTS / folder).is_dir()]


def unclear(names: list[str]) -> list[str]:
    return [name for name in names if UNCLEAR & set(words(name))]


def test_the_name_of_a_test_module_says_what_is_tested() -> None:
    assert [] == unclear([path.stem for path in modules() if is_test(path)])


@pytest.mark.parametrize(
    ("name", "found"), [("test_story", 1), ("test_fleet_story", 1), ("test_who_brought_it", 1), ("test_history", 0)]
)
def test_an_unclear_word_is_found_anywhere_in_a_name(name: str, found: int) -> None:
    assert found == len(unclear([name]))


def test_a_module_that_is_no_test_is_in_support() -> None:
    assert [] == [str(path) for path in modules() if not is_test(path) and path.parts[0] != "support"]


@pytest.mark.parametrize(
    "path", [path for path in modules() if not is_test(path) or path.name == "conftest.py"], ids=str
)
def test_a_helper_has_a_plain_name(path: Path) -> None:
    parts = {name: set(re.findall("[A-Z]?[a-z]+", name)) for name in names(path)}

    assert {} == {name: found for name, each in parts.items() if (found := {word.lower() for word in each} & METAPHORS)}
