"""A kasmon of the test's own, its web view, and one browser for all tests of a file."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.tui.dashboard import Home
from tests.support.web.chromium import Chromium

EVIL = "evil.example"
"""A name that a hostile name server leads to this machine."""


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home


@pytest.fixture
def line() -> Iterator[Cli]:
    line = Cli()
    yield line
    line.close()


class Web(NamedTuple):
    """A `kasmon web` that runs."""

    link: str
    pid: int


@pytest.fixture
def web(home: Home) -> Iterator[Web]:
    """A `kasmon web` over *home*."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KASMON_"))}
    environment = {**kept, **home.variables}
    with subprocess.Popen([*KASMON, "web", "--json"], env=environment, stdout=subprocess.PIPE) as served:
        assert served.stdout
        try:
            yield Web(json.loads(served.stdout.readline())["web"]["url"], served.pid)
        finally:
            served.terminate()
            assert served.wait(20) in (128 + 15, -9)  # a test may kill it


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    home = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    try:
        with Chromium(home, names={EVIL: "127.0.0.1"}) as browser:
            yield browser
    finally:
        rmtree(home, ignore_errors=True)
