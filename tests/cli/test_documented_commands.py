"""Every command in the documents parses, word by word; those in blocks run, page by page, from top to bottom."""

import contextlib
import inspect
import re
import shlex

import pytest
from cyclopts import MissingArgumentError

from kasmon.cli.app import build
from kasmon.cli.arguments import parse
from kasmon.cli.commands import COMMANDS, DEFAULT, find, load
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.cli.page_run import PAPERS, ROOT, PageRun, bare, block_lines, commands_of, succeed
from tests.support.cli.page_stories import agents, branches, browsers, other_machines, sessions

NAMED = re.compile(r"`(kasmon [a-z][^`|]*)`")
FORM = re.compile(r"[A-Z]{2,}|…|\.\.\.|/|\[")
"""What is left open in a command that is only named."""
OURS = ("kasmon host --tmux", "kasmon host --notify", "kasmon host --limits", "kasmon host --log-in")
"""What nobody types: how kasmon starts itself."""
STORIES = sessions.STORIES | branches.STORIES | agents.STORIES | browsers.STORIES | other_machines.STORIES
ELSEWHERE = {
    "CONTRIBUTING.md": "tests/test_contributing.py",
    "examples/plan.toml": "tests/cli/test_examples.py",
}
"""Pages whose commands another test runs -> that test."""
PAGES = [pytest.param(page, marks=pytest.mark.sandboxes if "sandboxes" in page else ()) for page in STORIES]
CONFIG = 'default_agent = "scripted"\n[templates.fix]\nprompt = "say x {issue}"\n'

app = build()


def commands() -> list[str]:
    """All commands of kasmon that the papers show or name, each once."""
    shown = {line for paper in PAPERS for line in commands_of(paper) if line.startswith("kasmon ")}
    named = (" ".join(words.split()) for paper in PAPERS for words in NAMED.findall(paper.read_text("utf-8")))
    return sorted({*shown, *(words for words in named if not FORM.search(words))})


@pytest.mark.parametrize("said", [said for said in commands() if said not in OURS])
def test_every_command_in_the_documents_is_accepted(said: str) -> None:
    words = shlex.split(said.replace("…", "0"))[1:]

    with contextlib.suppress(MissingArgumentError):  # where it is only named
        _, library, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        name, rest = find(words)
        command = load(COMMANDS.get(name, DEFAULT))
        if name and (parsed := parse(command, rest)) is not None:
            assert library.arguments == inspect.signature(command).bind(*parsed[0], **parsed[1]).arguments
    assert words[0] in app or words[0].startswith("-")


def test_commands_are_found_in_each_kind_of_block_and_nowhere_else() -> None:
    text = """
A line with `kasmon ls`, and one that is
    continued.

    kasmon one --flag     # a comment

1. A list:

        kasmon two | less

```toml
kasmon = "three"

    kasmon three
```

```console
kasmon four
```
"""
    assert ["kasmon one --flag", "kasmon two", "kasmon four"] == [bare(line) for line in block_lines(text)]
    with pytest.raises(ValueError, match="names no language"):
        block_lines("```\nkasmon five\n```\n")


def test_every_page_with_a_block_of_commands_has_a_story() -> None:
    shown = {str(paper.relative_to(ROOT)) for paper in PAPERS if commands_of(paper)}

    assert shown == {*STORIES, *ELSEWHERE}, "tests/support/cli/page_stories has how the commands of each page run"
    assert not STORIES.keys() & ELSEWHERE.keys()


@pytest.mark.story
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_its_order(kasmon: Cli, fork_server: ForkServer, page: str) -> None:
    """The scripted agent is the default agent, and stands in for claude."""
    (kasmon.home / "c" / "kasmon").mkdir(mode=0o700)
    (kasmon.home / "c" / "kasmon" / "config.toml").write_text(CONFIG)
    (kasmon.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    for folder in (kasmon.home / "shop", kasmon.home / "src" / "shop"):
        folder.mkdir(parents=True)
        if page not in branches.STORIES:
            (folder / ".kasmon.toml").write_text('default_agent = "scripted"\n')
    if page in branches.STORIES:
        kasmon.folder = kasmon.home / "shop"
    story, lines = STORIES[page], commands_of(ROOT / page)
    played = [line for line in lines if line not in story.left_out]

    assert played
    assert {*story.left_out, *story.before, *story.acts} <= {*lines}
    with PageRun(kasmon, fork_server, (ROOT / page).read_text("utf-8")) as run, story.fixture(run):
        for line in played:
            if line in story.before:
                story.before[line](run)
            story.acts.get(line, succeed)(run, line)
