"""Every test is run by a target of the Makefile, and every target by `.ci/run` or by the nightly workflow."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import pytest
from _pytest.mark.expression import Expression

from tests.support.syntax_trees import ROOT

OPTIONS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
DEFAULT: Final[str] = OPTIONS["addopts"][OPTIONS["addopts"].index("-m") + 1]
"""The tests that plain pytest runs."""
LEFT_OUT: Final = re.findall(r"not (\w+)", DEFAULT)
"""The marks of the others."""
MAKEFILE: Final = (ROOT / "Makefile").read_text()
TARGETS: Final = set(re.findall(r"^((?:test|chaos)[\w-]*):", MAKEFILE, re.MULTILINE))
"""The targets that run tests."""
CALL: Final = re.compile(r"(?:\btests [\w-]*pytest (?:'[\d ]+'|\d)|^\S+ -P -m pytest)( [^;|]*|$)", re.MULTILINE)
"""Runs pytest: the shell function `tests`, or Python itself; with the arguments."""


class Selection(NamedTuple):
    """What one call of pytest runs."""

    expression: str
    paths: list[str]
    ignored: list[str]

    def runs(self, file: str, *marks: str) -> bool:
        """Whether it runs a test with *marks* in *file*."""

        def has(name: str, /, **_: object) -> bool:
            return name in marks

        here = any(f"{file}/".startswith(f"{place}/") for place in self.paths) and file not in self.ignored
        return here and Expression.compile(self.expression).evaluate(has)


@cache
def commands(target: str) -> str:
    """The commands of *target* and of all that it needs, with the values of variables."""
    argv = ["make", "--no-print-directory", "-n", target]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ")


def selections(target: str) -> Iterator[Selection]:
    for words in map(shlex.split, CALL.findall(commands(target))):
        expression = words[words.index("-m") + 1] if "-m" in words else DEFAULT
        paths = [word for word in words if word.startswith("tests/")]
        ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
        yield Selection(expression, paths or OPTIONS["testpaths"], ignored)


def of_change() -> set[str]:
    """The targets that `.ci/run` runs."""
    return set(re.findall(r"^[A-Z_1= ]*make ([\w-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))


def of_night() -> set[str]:
    """The targets that the nightly workflow runs."""
    [matrix] = re.findall(r"target: \[(.*)\]", (ROOT / ".github/workflows/nightly.yml").read_text())
    return {each.strip(' "').split()[0] for each in matrix.split(",")}


def marked(mark: str) -> list[str]:
    """The files whose tests have *mark*."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files if f"pytest.mark.{mark}" in file.read_text("utf-8")]


@pytest.mark.parametrize("mark", LEFT_OUT)
def test_a_target_runs_all_tests_with_a_mark_that_plain_pytest_leaves_out(mark: str) -> None:
    calls = [call for target in sorted(TARGETS & (of_change() | of_night())) for call in selections(target)]
    files = [file for file in marked(mark) if "/test_" in file] or ["tests/sandbox/guest/test_python.py"]

    assert [] == [file for file in files if not any(call.runs(file, mark) for call in calls)]


def test_every_test_target_is_part_of_the_checks_of_a_change_or_a_night() -> None:
    assert {"test", "test-nightly", "chaos", "test-agents", "test-agents-short"} < TARGETS
    assert set() == TARGETS - of_change() - of_night()


def test_at_night_no_test_is_skipped_for_a_missing_sshd_or_root() -> None:
    workflow = (ROOT / ".github/workflows/nightly.yml").read_text()

    assert workflow.index("run: make sshd") < workflow.index("make ${{ matrix.target }}")
    assert re.search(r"'test-faults' && 'sudo -E'.* make .*\n +env:\n +KASMON_REQUIRE_SSHD: \"1\"\n", workflow)
    assert re.search(r' make .*\n +env:\n.*\n +KASMON_REQUIRE_NATS_SERVER: "1"\n', workflow)


def test_no_change_is_tested_without_a_nats_server_or_on_linux_without_an_sshd() -> None:
    workflow, script = ((ROOT / name).read_text() for name in (".github/workflows/checks.yml", ".ci/run"))
    [suite] = re.findall(r"\n  suite:\n(.*?)\n\n  install:", workflow, re.DOTALL)
    get, run = (
        suite.index("        if: runner.os == 'Linux'\n        run: make sshd\n"),
        suite.index("- run: make test test-stories\n"),
    )
    required = re.findall(r"KASMON_\w+: .*", suite[run:].partition("\n      - ")[0])

    assert get < run
    assert [
        "KASMON_REQUIRE_SSHD: ${{ runner.os == 'Linux' && '1' || '' }}",
        'KASMON_REQUIRE_NATS_SERVER: "1"',
    ] == required
    assert "\nexport KASMON_REQUIRE_SSHD=1 KASMON_REQUIRE_NATS_SERVER=1\nmake test\nmake test-stories\n" in script


def test_one_command_runs_the_tests_that_a_change_leaves_out() -> None:
    [nightly] = re.findall(r"^NIGHTLY = (.*)", MAKEFILE, re.MULTILINE)

    assert set() == TARGETS - of_change() - set(nightly.split())
    assert commands("nightly").endswith(commands("bench").splitlines()[-1] + "\n")


def test_the_short_suites_run_a_story_of_each_agent_and_of_a_jail() -> None:
    [agents] = selections("test-agents-short")
    [sandboxes] = selections("test-sandboxes-short")

    assert agents.runs("tests/agents/stack/test_cli.py", "agents", "short")
    assert not agents.runs("tests/agents/stack/test_cli.py", "agents")
    assert sandboxes.runs("tests/sandbox/jail/test_attack.py", "sandboxes", "short")
    assert not sandboxes.runs("tests/sandbox/jail/test_attack.py", "sandboxes")
    assert {"tests/agents/stack/test_cli.py", "tests/sandbox/jail/test_attack.py"} <= set(marked("short"))


@pytest.mark.parametrize("mark", [line.partition(":")[0] for line in OPTIONS["markers"]])
def test_a_mark_is_used(mark: str) -> None:
    assert marked(mark)
