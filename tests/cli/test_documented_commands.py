"""Every command in the documents parses, word by word; the README's first session is run."""

import contextlib
import inspect
import re
import shlex
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from kasmon.cli.app import build
from kasmon.cli.arguments import parse
from kasmon.cli.commands import COMMANDS, DEFAULT, find, load
from tests.support.cli.cli_runner import Cli

ROOT = Path(__file__).parents[2]
PAPERS = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*"))
"""All documents, and the examples, whose comments name commands."""

SHOWN = re.compile(r"^    (kasmon [a-z].*)$", re.MULTILINE)
NAMED = re.compile(r"`(kasmon [a-z][^`|]*)`")
FORM = re.compile(r"[A-Z]{2,}|…|\.\.\.|/|\[")
"""What is left open in a command that is only named."""

app = build()
OURS = ("kasmon host --tmux", "kasmon host --notify", "kasmon host --limits", "kasmon host --log-in")
"""What nobody types: how kasmon starts itself."""


def commands() -> list[str]:
    """All that stand in the papers, each once; without their comments."""
    text = "\n".join(paper.read_text() for paper in PAPERS)
    named = [" ".join(words.split()) for words in NAMED.findall(text)]
    return sorted({*map(bare, SHOWN.findall(text)), *(words for words in named if not FORM.search(words))})


def bare(line: str) -> str:
    """*line* without its comment, and without what is done with what it prints."""
    return re.split(r" [#|>] | >", line)[0].strip()


@pytest.mark.parametrize("said", [said for said in commands() if said not in OURS])
def test_every_command_in_the_papers_is_understood(said: str) -> None:
    words = shlex.split(said.replace("…", "0"))[1:]

    with contextlib.suppress(MissingArgumentError):  # where it is only named
        _, library, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        name, rest = find(words)
        command = load(COMMANDS.get(name, DEFAULT))
        if name and (parsed := parse(command, rest)) is not None:
            assert library.arguments == inspect.signature(command).bind(*parsed[0], **parsed[1]).arguments
    assert words[0] in app


@pytest.mark.story
def test_the_first_session_runs_as_the_readme_says(kasmon: Cli) -> None:
    """The scripted agent, which needs no account, stands in for claude."""
    chapter = (ROOT / "README.md").read_text().split("## First session")[1].split("\n## ")[0]
    lines = [bare(line) for line in SHOWN.findall(chapter)]
    (kasmon.home / "shop").mkdir()

    assert len(lines) > 4
    for line in lines:
        words = shlex.split(line.replace("--agent claude", "--agent scripted").replace("~", str(kasmon.home)))[1:]
        if words[0] == "attach":  # it is for a terminal, and has tests of its own
            continue
        done = kasmon(*words)
        assert 0 == done.code, (line, done.err)


AGENT = "its agent shows it: the scripted agent has no such request, terminal or conversation"
DIGEST = "its digest is an example"
LIVE = "it needs a person at a terminal"
NEEDS = "it needs a network, an account or an image"

PLAYED = {
    "docs/configuration.md": {},
    "docs/plans.md": {"kasmon plan run refactor.toml": LIVE, "kasmon plan retry refactor parser": "no task has failed"},
    "docs/cli.md": {
        "kasmon new logs --in fix-auth -- tail -f log/test.log": AGENT,
        "kasmon answer q7f4a2bc-1 allow --digest 680da8ad…": DIGEST,
        "kasmon attach fix-auth": LIVE,
        "kasmon move fix-auth --to tmux": AGENT,
        "kasmon adopt work:1.0": "it needs a tmux of the user's",
        'kasmon grep -i "token expired"': "exit code 1: no match",
    },
    "docs/getting-started.md": {
        "kasmon demo": LIVE,
        "kasmon attach fix-auth": LIVE,
        "kasmon answer q7f4a2bc-1 allow --digest 680da8ad…": DIGEST,
        'kasmon new fix-auth --agent claude --mode sdk --prompt "The login test fails since Tuesday."': (
            "a session of an earlier section has the name"
        ),
        "kasmon answer q7f4a2bc-1 always --scope project --digest …": DIGEST,
        "kasmon move fix-auth --to tmux": AGENT,
        "kasmon restart fix-auth": "it is already running",
    },
    "docs/trust.md": {},
    "docs/sandboxes.md": {
        "kasmon new fix-auth --agent claude --sandbox jail --dir ~/shop": LIVE,
        "kasmon sandbox run lab --lang bash 'pip download six'": NEEDS,
        "kasmon sandbox forward lab 8000": "it runs until Ctrl+C",
        "kasmon sandbox image build": NEEDS,
        "kasmon sandbox create lab --tier microvm": NEEDS,
        "kasmon sandbox create lab --tier e2b": NEEDS,
        "kasmon new fix-auth --agent claude --sandbox microvm --dir ~/shop": NEEDS,
        "kasmon sandbox pause fix-auth --disk": NEEDS,
    },
}
"""Pages whose commands run from top to bottom -> those that do not, and why."""
CONFIG = 'default_agent = "scripted"\n[templates.fix]\nprompt = "say x {issue}"\n'
ASKING = ("kasmon trust ~/src/shop",)
"""Commands that ask on a terminal; the test agrees there."""
PAGES = [pytest.param(page, marks=pytest.mark.sandboxes if "sandboxes" in page else ()) for page in PLAYED]


@pytest.mark.story
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_its_order(kasmon: Cli, page: str) -> None:
    """The scripted agent is the default agent, and stands in for claude."""
    (kasmon.home / "c" / "kasmon").mkdir(mode=0o700)
    (kasmon.home / "c" / "kasmon" / "config.toml").write_text(CONFIG)
    for folder in (kasmon.home / "shop", kasmon.home / "src" / "shop"):
        folder.mkdir(parents=True)
        (folder / ".kasmon.toml").write_text('default_agent = "scripted"\n')
    lines = [bare(line) for line in SHOWN.findall((ROOT / page).read_text("utf-8"))]
    played = [line for line in lines if line not in PLAYED[page]]

    assert len(played) > 1
    assert {*PLAYED[page]} <= {*lines}
    for line in played:
        words = shlex.split(line.replace("--agent claude", "--agent scripted").replace("~", str(kasmon.home)))[1:]
        if line in ASKING:
            assert 0 == kasmon.terminal(*words, typed=[("[y/N]", "y\r")])[0], line
            continue
        done = kasmon(*words)
        assert 0 == done.code, (line, done.out, done.err)
