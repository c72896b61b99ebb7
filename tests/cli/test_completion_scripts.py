"""The completion scripts, in the shells that they are for: Tab finishes a command, and an option."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.detection.terminal import Terminal

pytestmark = pytest.mark.story

SHELLS = {
    "bash": (("bash", "--norc", "--noprofile"), "source ./script"),
    "zsh": (("zsh", "-f"), "mkdir f; mv script f/_kasmon; fpath=($PWD/f $fpath); autoload -U compinit; compinit -u -D"),
    "zsh, sourced": (("zsh", "-f"), "autoload -U compinit; compinit -u -D; source ./script"),
    "fish": (("fish", "--no-config"), "source ./script"),
}
"""How each is started, and what it has to be told."""
FINISHED = (
    ("kasmon doct", r"kasmon doctor\b"),
    ("--rep", r"kasmon doctor +--report\b"),
    ("; kasmon show fix", r"kasmon show fix-auth\b"),
    ("; kasmon config ui.theme no", r"kasmon config ui.theme nord\b"),
)
"""What is typed before Tab, and what stands there then."""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="kc-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_a_command_an_option_a_session_and_a_theme(kasmon: Cli, folder: Path, shell: str) -> None:
    argv, prepared = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    kasmon.new("fix-auth")
    (folder / "script").write_text(kasmon("completion", argv[0]).out)
    (folder / "kasmon").write_text(f'#!/bin/sh\nexec {shlex.join(KASMON)} "$@"\n')
    (folder / "kasmon").chmod(0o700)
    environment = {**kasmon.environment, "HOME": str(folder), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    with Terminal(argv, environment, folder) as stage:
        stage.type(f"{prepared}; echo ready")
        stage.key("Enter")
        stage.until("^ready$")
        for typed, finished in FINISHED:
            stage.type(typed)
            stage.key("Tab")
            stage.until(finished)
        stage.key("C-u")


def test_tab_offers_what_the_command_accepts(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "say hello")
    (kasmon.home / "plans").mkdir()
    (kasmon.home / "plans" / "one.toml").write_text('[[task]]\nid = "a"\nprompt = "b"\n')
    (kasmon.home / "README.md").write_text("# No plan\n")
    os.mkfifo(kasmon.home / "pipe.md")

    def offered(*words: str) -> list[str]:
        done = kasmon("__complete", *words)
        assert (0, "") == (done.code, done.err)
        return [line.partition("\t")[0] for line in done.out.partition("\x1fbegin\n")[2].splitlines()]

    assert ["fix-auth"] == offered("show", "")
    assert ["fix-auth", session] == offered("show", session[:2])
    assert ["fix-auth"] == offered("new", "more", "--in", "")
    assert ["fix-auth"] == offered("new", "more", "--in", "=", "fi") == offered("new", "more", "--in=fi")
    assert ["fix-auth"] == offered("wait", "--for", "idle", "fix-auth", "")
    assert [] == offered("wait", "--for", "") == offered("new", "more", "--", "")
    assert [] == offered("sandbox", "run", "")
    assert {"claude", "shell", "scripted"} < set(offered("new", "more", "--agent", ""))
    assert {"nord", "monochrome"} < set(offered("config", "ui.theme", ""))
    assert ["true", "false"] == offered("config", "ui.bell", "")
    assert ["plans/one.toml"] == offered("plan", "check", "")
    assert ["plans/one.toml"] == offered("plan", "run", "plans/")


@pytest.mark.parametrize("words", [["show", ""], ["new", "x", "--agent", ""], ["config", ""], ["nothing", ""]], ids=str)
def test_without_readable_files_tab_offers_nothing_and_prints_nothing(kasmon: Cli, words: list[str]) -> None:
    kasmon.paths.config.mkdir(exist_ok=True)
    kasmon.paths.config_file.write_text("[broken")
    (kasmon.home / "s" / "kasmon").write_text("a file in place of the folder")

    done = kasmon("__complete", *words)

    assert (0, "", "\n\x1fbegin\n") == (done.code, done.err, done.out)
