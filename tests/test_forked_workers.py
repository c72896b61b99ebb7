"""`pytest --workers`: each test runs once, in one of several processes, and its report reaches the first process."""

import subprocess
import sys

import pytest

TESTS = """
import os
import time
import pytest

FIRST = os.getppid()

@pytest.fixture
def snapshot():
    pass

@pytest.mark.parametrize("number", range(20))
def test_elsewhere(number, tmp_path):
    print(f"output of {number}")
    assert FIRST == int(os.environ["STARTED_BY"])
    assert os.getppid() != FIRST
    assert number != 7

@pytest.mark.parametrize("number", range(4))
def test_much_output(number):
    print("much " * 50_000)

def test_after_much_output():
    open("after", "x").close()

def test_here(snapshot):
    assert os.getppid() == FIRST
    while not os.path.exists("after"):
        time.sleep(0.01)
    assert False, "a snapshot differs"

def test_skipped():
    pytest.skip("no reason")

def test_that_ends_its_process():
    os._exit(3)
"""

TREES = """
import os
import pytest
from tests.support.syntax_trees import modules

@pytest.mark.parametrize("number", range(20))
def test_tree(number):
    print(f"trees in process {os.getpid()}")
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What pytest prints about these tests."""
    tmp_path = tmp_path_factory.mktemp("run")
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_them.py").write_text(TESTS)
    for name in ("early", "late"):
        (tmp_path / f"test_{name}_trees.py").write_text(TREES)
    python = 'import os, sys; os.environ["STARTED_BY"] = str(os.getppid()); import pytest; sys.exit(pytest.main())'
    argv = ["-P", "-c", python, "-p", "tests.support.forked_workers", "--workers", "2", "-rA", "-n", "0"]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert 1 == done.returncode, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_each_test_runs_once_and_a_worker_that_dies_fails_the_test_it_ran(lines: list[str]) -> None:
    name = "test_them.py::test_"
    passed = {f"PASSED {name}elsewhere[{number}]" for number in range(20) if number != 7}
    passed |= {*(f"PASSED {name}much_output[{number}]" for number in range(4)), f"PASSED {name}after_much_output"}
    passed |= {
        f"PASSED test_{file}_trees.py::test_tree[{number}]" for file in ("early", "late") for number in range(20)
    }

    assert passed == {line for line in lines if line.startswith("PASSED")}
    assert {
        f"FAILED {name}elsewhere[7] - assert 7 != 7",
        f"FAILED {name}here - AssertionError: a snapshot differs",
        f"FAILED {name}that_ends_its_process",
    } == {line for line in lines if line.startswith("FAILED")}
    assert "its process ended with exit code 3" in lines
    assert "3 failed, 64 passed, 1 skipped" in lines[-1]


def test_a_report_has_the_output_of_its_test_alone_and_one_process_runs_the_syntax_trees(lines: list[str]) -> None:
    at = next(number for number, line in enumerate(lines) if "test_elsewhere[7]" in line and line.startswith("___"))
    end = next(number for number, line in enumerate(lines[at + 1 :], at + 1) if line.startswith(("___", "===")))
    assert ["output of 7"] == [line for line in lines[at:end] if line.startswith("output of")]

    assert 1 == len({line for line in lines if line.startswith("trees in process")})
