"""What a process's environment tells, also while the process executes a new program."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kasmon import system
from kasmon.launch import RUN
from kasmon.process_identity import find_processes_with
from kasmon.system import linux
from kasmon.system.linux import read_environ

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc")

SLEEPER = ["sh", "-c", "echo up; read line"]
EXECUTES = """set -- "$1"; exec sh -c "$1" sh "$1" """
"""A shell's script that executes itself for ever."""


@contextmanager
def running(argv: list[str], variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_environment_is_the_one_at_its_start() -> None:
    with running(SLEEPER, {"PATH": "/usr/bin:/bin", "A": "1=2", "EMPTY": "", "LINES": "a\nb"}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = system.HERE.read_variables(process.pid)

    assert {"PATH": "/usr/bin:/bin", "A": "1=2", "EMPTY": "", "LINES": "a\nb"}.items() <= found.items()


def test_an_exited_process_has_an_empty_environment() -> None:
    with running(SLEEPER, {}) as process:
        pass

    assert {} == system.HERE.read_variables(process.pid)


@needs_proc
def test_a_process_that_executes_programs_endlessly_has_its_environment_each_time() -> None:
    """Linux reports an empty one in one of twenty reads of such a process."""
    with running(["sh", "-c", EXECUTES, "sh", EXECUTES], {"PATH": "/usr/bin:/bin", RUN: "the mark"}) as process:
        found = [system.HERE.read_variables(process.pid).get(RUN) for _ in range(3_000)]

    assert {"the mark"} == set(found)


@needs_proc
def test_an_empty_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited would wait for longer than a test may take."""
    monkeypatch.setattr(linux, "EXEC_S", 600.0)

    with running([sys.executable, "-c", "print('up', flush=True); input()"], {}) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert b"" == read_environ(process.pid)


def test_processes_are_found_by_a_variable_with_its_value_and_no_others() -> None:
    with running(SLEEPER, {"A_MARK": "1=2"}) as one, running(SLEEPER, {"NO_A_MARK": "3", "TOLD": "A_MARK=4"}) as other:
        for process in (one, other):
            assert process.stdout is not None
            process.stdout.readline()

        assert [(one.pid, "1=2")] == list(find_processes_with("A_MARK"))
