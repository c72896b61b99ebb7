"""The completion scripts, in the shells that they are for: Tab finishes a command, and an option."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.line import Line
from tests.screens.stage import Stage

SHELLS = {
    "bash": (("bash", "--norc", "--noprofile"), "source ./script"),
    "zsh": (("zsh", "-f"), "mkdir f; mv script f/_kasmon; fpath=($PWD/f $fpath); autoload -U compinit; compinit -u -D"),
    "zsh, sourced": (("zsh", "-f"), "autoload -U compinit; compinit -u -D; source ./script"),
    "fish": (("fish", "--no-config"), "source ./script"),
}
"""How each is started, and what it has to be told."""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="kc-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_finishes_a_command_and_an_option(kasmon: Line, folder: Path, shell: str) -> None:
    argv, prepared = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    (folder / "script").write_text(kasmon("completion", argv[0]).out)
    environment = {**kasmon.environment, "HOME": str(folder), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
    with Stage(argv, environment, folder) as stage:
        stage.type(f"{prepared}; echo ready")
        stage.key("Enter")
        stage.until("^ready$")
        stage.type("kasmon doct")
        stage.key("Tab")
        stage.until(r"kasmon doctor\b")
        stage.type("--rep")
        stage.key("Tab")
        stage.until(r"kasmon doctor +--report\b")
