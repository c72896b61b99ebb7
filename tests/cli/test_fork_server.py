"""A command that was forked does what one with a Python of its own does."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer


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
def test_it_has_the_same_code_and_the_same_words(
    kasmon: Cli, plain: Cli, arguments: tuple[str, ...], given: str
) -> None:
    told = [line(*arguments, given=given) for line in (kasmon, plain)]

    assert told[0] == told[1]


def test_it_has_its_own_variables_and_its_own_folder(kasmon: Cli) -> None:
    assert "SHELL=/one" in kasmon("doctor", "--report", SHELL="/one").out
    assert "SHELL" not in kasmon("doctor", "--report").out


def test_one_that_waits_holds_up_no_other_and_one_that_takes_too_long_is_killed(
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
