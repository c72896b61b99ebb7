"""Every command in the documents parses, word by word; the README's first session is run."""

import contextlib
import inspect
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from kasmon.cli.app import build
from kasmon.cli.arguments import parse
from kasmon.cli.commands import COMMANDS, DEFAULT, find, load
from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import turn
from tests.support.git_repo import Repo

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
FORGE = "it needs a pull request"

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
    "docs/mcp.md": {},
    "docs/review.md": {},
    "docs/worktrees.md": {
        "kasmon new review --base pr:123": FORGE,
        "kasmon finish fix --pr --draft": FORGE,
        "kasmon merge-plan --plan tidy": "it needs a plan that has run",
    },
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
UNPLAYED = {
    "docs/acp.md": "an editor starts `kasmon acp` and speaks to it on stdin",
    "docs/agents.md": "its example is another program; tests/cli/agents plays these commands with one",
    "docs/cluster.md": "its commands belong to several machines; tests/cli/cluster plays them",
    "docs/idle.md": "only the conversation of a real agent can be proved to be stored; tests/agents hibernates one",
    "docs/notifications.md": "it needs targets that receive messages; tests/cli/notify has them",
    "docs/performance.md": "a run of the bench takes many minutes",
    "docs/phone.md": "it needs the server that `kasmon web` runs until Ctrl+C; tests/cli/web has it",
    "docs/remote.md": "it needs a machine that is reached by ssh; tests with sshd have one",
    "docs/web.md": "`kasmon web` serves until Ctrl+C; tests/web runs it",
}
"""Pages whose commands are only parsed -> why."""
CONFIG = 'default_agent = "scripted"\n[templates.fix]\nprompt = "say x {issue}"\n'
AGREED = ("else to cancel:", "yes\r")
ASKING = {
    "kasmon trust ~/src/shop": [("[y/N]", "y\r")],
    "kasmon undo fix-login": [AGREED],
    "kasmon undo fix-login --redo": [AGREED],
    "kasmon hunks fix-login revert src/login.py:12": [AGREED],
    "kasmon hunks fix-login undo": [AGREED],
    'kasmon finish fix --commit -m "Fix the login"': [AGREED],
    "kasmon finish fix --update rebase": [AGREED],
    "kasmon finish fix --update rebase --fetch": [AGREED],
    "kasmon finish fix --push": [AGREED],
    "kasmon finish fix --commit --squash --discard": [("else to cancel:", "fix\r")],
    'kasmon merge-plan fix docs search --check "make test"': [AGREED],
}
"""Commands that ask on a terminal -> the text that the test awaits there, and its answer."""
PAGES = [pytest.param(page, marks=pytest.mark.sandboxes if "sandboxes" in page else ()) for page in PLAYED]


def prepare_review(kasmon: Cli) -> None:
    """A session with three turns that changed two hunks of one file."""
    repo = Repo(kasmon.folder)
    source = repo.folder / "src" / "login.py"
    repo.commit("src/login.py", "".join(f"line {number}\n" for number in range(1, 61)))
    kasmon.new("fix-login", "", "--dir", str(repo.folder))
    for number, line in enumerate((12, 40, 13)):
        text = source.read_text().replace(f"line {line}\n", f"turn {number}\n")
        turn(kasmon, partial(source.write_text, text), "fix-login")


def prepare_worktrees(kasmon: Cli) -> None:
    """A repository with a remote, a tag and a branch, and a session that has changed its worktree."""
    repo = Repo(kasmon.folder)
    repo.commit("Makefile", "test:\n\ttrue\n")
    repo.git("tag", "v1.4")
    repo.git("branch", "search")
    repo.git("init", "--quiet", "--bare", str(kasmon.home / "origin.git"))
    repo.git("remote", "add", "origin", str(kasmon.home / "origin.git"))
    repo.git("push", "--quiet", "-u", "origin", "main")
    for name in ("fix", "docs"):
        kasmon.new(name, "", "--worktree", "--dir", str(repo.folder))
    worktrees = repo.folder.parent / "shop-worktrees"
    (worktrees / "fix" / "fix.txt").write_text("fixed\n")
    repo.commit("docs.txt", at=worktrees / "docs")
    repo.commit("main.txt")


REPOSITORIES = {"docs/review.md": prepare_review, "docs/worktrees.md": prepare_worktrees}
"""Pages whose commands run in a git repository -> what the repository has before the first one."""


def stop_fix(kasmon: Cli) -> None:
    (kasmon.home / "shop-worktrees" / "fix" / "more.txt").write_text("more\n")
    assert 0 == kasmon("stop", "fix").code


def start_three(kasmon: Cli) -> None:
    """Sessions whose branches begin from `main`; those of the sections before have these names."""
    repo = Repo(kasmon.folder, commits=0)
    assert 0 == kasmon("stop", "docs", "search").code
    for name in ("fix", "docs", "search"):
        assert 0 == kasmon("rm", name).code
        kasmon.new(name, "", "--worktree", "--branch", f"{name}-2", "--dir", str(repo.folder))
        worktree = kasmon.json("show", name)["session"]["worktree"]
        repo.commit(f"{name}-2.txt", at=Path(worktree["path"]))


BEFORE: dict[str, Callable[[Cli], object]] = {
    "kasmon comments fix-login": lambda kasmon: kasmon("comment", "fix-login", "src/login.py:40", "And this?"),
    "kasmon hunks fix-login": lambda kasmon: kasmon("wait", "fix-login", "--for", "idle"),
    "kasmon finish fix --commit --squash --discard": stop_fix,
    "kasmon merge-plan fix docs search --dry-run": start_three,
}
"""What a person does on a page before a command."""


def fill(kasmon: Cli, line: str) -> str:
    """*line* with the ids and the digest of this run instead of the examples."""
    if "3fa9c1" in line:
        for example, comment in zip(
            ("3fa9c1", "b20e77"), kasmon.json("comments", "fix-login")["comments"], strict=True
        ):
            line = line.replace(example, comment["id"])
    if "5f0c2a91d3e47b86" in line:
        line = line.replace("5f0c2a91d3e47b86", kasmon.json("hunks", "fix-login")["hunks"][0]["digest"])
    return line


def test_every_page_with_commands_is_played_or_says_why_not() -> None:
    shown = {str(paper.relative_to(ROOT)) for paper in PAPERS if SHOWN.search(paper.read_text("utf-8"))}

    assert shown == {"README.md", *PLAYED, *UNPLAYED}
    assert not PLAYED.keys() & UNPLAYED.keys()


@pytest.mark.story
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_its_order(kasmon: Cli, page: str) -> None:
    """The scripted agent is the default agent, and stands in for claude."""
    (kasmon.home / "c" / "kasmon").mkdir(mode=0o700)
    (kasmon.home / "c" / "kasmon" / "config.toml").write_text(CONFIG)
    (kasmon.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    for folder in (kasmon.home / "shop", kasmon.home / "src" / "shop"):
        folder.mkdir(parents=True)
        if page not in REPOSITORIES:
            (folder / ".kasmon.toml").write_text('default_agent = "scripted"\n')
    lines = [bare(line) for line in SHOWN.findall((ROOT / page).read_text("utf-8"))]
    played = [line for line in lines if line not in PLAYED[page]]
    if page in REPOSITORIES:
        kasmon.folder = kasmon.home / "shop"
        REPOSITORIES[page](kasmon)

    assert played
    assert {*PLAYED[page]} <= {*lines}
    for line in played:
        if line in BEFORE:
            BEFORE[line](kasmon)
        words = shlex.split(
            fill(kasmon, line).replace("--agent claude", "--agent scripted").replace("~", str(kasmon.home))
        )[1:]
        if line in ASKING:
            code, shown = kasmon.terminal(*words, typed=ASKING[line])
            assert 0 == code, (line, shown)
            continue
        done = kasmon(*words)
        assert 0 == done.code, (line, done.out, done.err)
