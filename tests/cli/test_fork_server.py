"""A command that was forked does what one with a Python of its own does."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kasmon.process_identity import find_processes_with
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.wait import LIMIT_S


@pytest.fixture
def plain() -> Iterator[Cli]:
    line = Cli()
    yield line
    line.close()


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (("--version",), ""),
        (("lss", "--json"), ""),
        (("send", "nobody", "-"), "grüße\n"),
        (("ls", "--state", os.fsdecode(b"caf\xe9")), ""),
        (("config", "ui.theme", "--json"), ""),
    ],
)
def test_a_forked_command_has_the_same_code_and_the_same_arguments(
    kasmon: Cli, plain: Cli, arguments: tuple[str, ...], given: str
) -> None:
    told = [line(*arguments, given=given) for line in (kasmon, plain)]

    assert told[0] == told[1]


def test_it_has_its_own_variables_and_its_own_folder(kasmon: Cli) -> None:
    assert "SHELL=/one" in kasmon("doctor", "--report", SHELL="/one").out
    assert "SHELL" not in kasmon("doctor", "--report").out


def test_a_waiting_command_blocks_no_other_and_one_that_exceeds_its_time_is_killed(
    fork_server: ForkServer, kasmon: Cli
) -> None:
    kasmon.new("docs", "say hello")
    waits = ("wait", "docs", "--for", "limited")

    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(kasmon, *waits, "--timeout", "20")
        assert "docs" in kasmon("ls").out
        kasmon("stop", "docs")
        assert 4 == waiting.result().code

    kasmon("restart", "docs")
    with pytest.raises(TimeoutError):
        fork_server.run(waits, kasmon.environment, kasmon.home, "", 0.5)
    assert 0 == kasmon("ls").code


def test_a_killed_caller_ends_the_command_for_no_other_caller(fork_server: ForkServer, kasmon: Cli) -> None:
    for asked in (b"", b"     100", b"     100part"):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(fork_server.path)
            asking.sendall(asked)

    assert 0 == kasmon("ls").code


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="without /proc no process shows its variables")
def test_it_is_found_by_its_variables_as_soon_as_it_has_a_pid(fork_server: ForkServer, kasmon: Cli) -> None:
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
        command = fork_server.start(("ls", "--watch"), kasmon.environment, kasmon.home, [nothing.fileno()] * 3)
    found = dict(find_processes_with("XDG_STATE_HOME"))
    command.kill()
    command.wait(LIMIT_S)

    assert kasmon.environment["XDG_STATE_HOME"] == found[command.pid]
