"""What the papers tell people to type is understood, word by word; the first five minutes are run."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from kasmon.cli import app
from tests.cli.line import Line

ROOT = Path(__file__).parents[2]
PAPERS = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
SHOWN = re.compile(r"^    (kasmon [a-z].*)$", re.MULTILINE)
NAMED = re.compile(r"`(kasmon [a-z][^`|]*)`")
FORM = re.compile(r"[A-Z]{2,}|…|\.\.\.|/|\[")
"""What is left open in a command that is only named."""

OURS = ("kasmon host --tmux",)
"""What nobody types: how kasmon starts itself."""


def commands() -> list[str]:
    """All that stand in the papers, each once; without their comments."""
    text = "\n".join((ROOT / paper).read_text() for paper in PAPERS)
    named = [" ".join(words.split()) for words in NAMED.findall(text)]
    return sorted({*map(bare, SHOWN.findall(text)), *(words for words in named if not FORM.search(words))})


def bare(line: str) -> str:
    """*line* without its comment, and without what is done with what it prints."""
    return re.split(r" [#|>] | >", line)[0].strip()


@pytest.mark.parametrize("said", [said for said in commands() if said not in OURS])
def test_every_command_in_the_papers_is_understood(said: str) -> None:
    words = shlex.split(said.replace("…", "0"))[1:]

    with contextlib.suppress(MissingArgumentError):  # where it is only named
        app.parse_args(words, exit_on_error=False, print_error=False)
    assert words[0] in app


@pytest.mark.story
def test_the_first_five_minutes_go_as_the_readme_says(kasmon: Line) -> None:
    """The scripted agent, which needs no account, stands in for claude."""
    chapter = (ROOT / "README.md").read_text().split("## The first five minutes")[1].split("\n## ")[0]
    lines = [bare(line) for line in SHOWN.findall(chapter)]
    (kasmon.home / "shop").mkdir()

    assert len(lines) > 4
    for line in lines:
        words = shlex.split(line.replace("--agent claude", "--agent scripted").replace("~", str(kasmon.home)))[1:]
        if words[0] == "attach":  # it is for a terminal, and has tests of its own
            continue
        done = kasmon(*words)
        assert 0 == done.code, (line, done.err)
