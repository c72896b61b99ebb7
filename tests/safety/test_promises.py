"""Each promise of docs/promises.md and each threat and fault of SECURITY names a test, and each named test exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
THREATS = [f"T{number}" for number in range(1, 21) if number != 17]
FAULTS = [f"F{number}" for number in range(1, 30) if number not in (19, 20)]
"""Without those of a bus between machines, which kasmon does not have."""
GUARDS = {
    "the paste guard": "tests/tmux/test_paste.py::test_without_the_guard_the_server_dies",
    "the digest": "tests/safety/test_pins.py::test_an_answer_to_another_text_reaches_no_agent",
    "the deaf period": "tests/safety/test_pins.py::test_a_key_pressed_as_the_card_opens_is_no_answer",
    "paths stay inside": "tests/safety/test_pins.py::test_an_id_that_is_a_path_starts_no_host",
    "modes of files": "tests/safety/test_pins.py::test_every_function_that_makes_a_file_sets_its_mode",
    "redaction": "tests/safety/test_pins.py::test_a_secret_is_not_on_the_card",
    "`##`": "tests/tmux/test_hostile.py::test_without_the_escape_a_name_would_be_run",
    "`tmux -u`": "tests/safety/test_pins.py::test_a_text_is_preserved_without_a_locale",
    "`--` before words": "tests/safety/test_pins.py::test_a_prompt_that_looks_like_a_flag_is_text",
    "one answer counts": "tests/safety/test_pins.py::test_one_of_two_answers_is_accepted",
    "facts leave in order": "tests/safety/test_pins.py::test_events_that_wait_for_the_disk_are_written_in_order",
}
"""Guards that must never rot -> the test in which each is taken out, and the attack gets through."""


def named(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


@cache
def known_in(path: str) -> set[str]:
    """The names of all tests in the file at *path*."""
    tree = ast.parse((ROOT / path).read_bytes())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


@pytest.mark.parametrize("paper", ["docs/promises.md", "SECURITY.md"])
def test_every_named_test_exists(paper: str) -> None:
    said = named((ROOT / paper).read_text())

    assert said
    assert [] == [f"{path}::{name}" for path, name in said if name not in known_in(path)]


def test_each_of_the_ten_promises_names_its_test() -> None:
    chapter = (ROOT / "docs/promises.md").read_text().split("## What it promises")[1].split("\n## ")[0]
    promises = re.split(r"^\d+\. ", chapter, flags=re.MULTILINE)[1:]

    assert 10 == len(promises)
    assert all(named(promise) for promise in promises)


@pytest.mark.parametrize("mark", THREATS + FAULTS)
def test_each_threat_and_each_fault_has_a_line_with_a_test(mark: str) -> None:
    (line,) = re.findall(rf"^\| {mark} \| .*$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)

    assert named(line)


@pytest.mark.parametrize("guard", GUARDS)
def test_each_guard_has_a_test_that_disables_it(guard: str) -> None:
    path, _, name = GUARDS[guard].partition("::")

    assert name in known_in(path)
