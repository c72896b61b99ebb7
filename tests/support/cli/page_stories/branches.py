"""Pages whose commands run in a git repository: `docs/review.md` and `docs/worktrees.md`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.cli.page_run import AGREE, PageRun, PageStory, type_at
from tests.support.cli.turns import turn
from tests.support.forge_client import ADDRESSES, ForgeClient
from tests.support.git_repo import Repo

PLAN = """
name = "tidy"
worktree = "own"
[[task]]
id = "sort"
run = "echo sorted >sorted.txt; git add .; git commit --quiet -m sort"
[[task]]
id = "trim"
run = "echo trimmed >trimmed.txt; git add .; git commit --quiet -m trim"
"""


@contextmanager
def three_turns(run: PageRun) -> Iterator[None]:
    """A session with three turns that changed two hunks of one file."""
    kasmon = run.kasmon
    repo = Repo(kasmon.folder)
    source = repo.folder / "src" / "login.py"
    repo.commit("src/login.py", "".join(f"line {number}\n" for number in range(1, 61)))
    kasmon.new("fix-login", "", "--dir", str(repo.folder))
    for number, line in enumerate((12, 40, 13)):
        text = source.read_text().replace(f"line {line}\n", f"turn {number}\n")
        turn(kasmon, partial(source.write_text, text), "fix-login")
    yield


def read_comment_ids(run: PageRun) -> None:
    comments = run.kasmon.json("comments", "fix-login")["comments"]
    run.filled |= {example: each["id"] for example, each in zip(("3fa9c1", "b20e77"), comments, strict=True)}


def read_digest(run: PageRun) -> None:
    run.filled["5f0c2a91d3e47b86"] = run.kasmon.json("hunks", "fix-login")["hunks"][0]["digest"]


@contextmanager
def repository(run: PageRun) -> Iterator[None]:
    """A repository with a remote at a forge, a tag and a branch, and a session that has changed its worktree."""
    kasmon = run.kasmon
    repo = Repo(kasmon.folder)
    repo.commit("Makefile", "test:\n\ttrue\n")
    repo.git("tag", "v1.4")
    repo.git("branch", "search")
    repo.git("init", "--quiet", "--bare", str(kasmon.home / "origin.git"))
    repo.git("config", f"url.{kasmon.home / 'origin.git'}.insteadOf", ADDRESSES["gh"])
    repo.git("remote", "add", "origin", ADDRESSES["gh"])
    repo.git("push", "--quiet", "-u", "origin", "main")
    for name in ("fix", "docs"):
        kasmon.new(name, "", "--worktree", "--dir", str(repo.folder))
    worktrees = repo.folder.parent / "shop-worktrees"
    (worktrees / "fix" / "fix.txt").write_text("fixed\n")
    repo.commit("docs.txt", at=worktrees / "docs")
    repo.commit("main.txt")
    shop = ADDRESSES["gh"].removesuffix(".git")
    pull = {"headRefOid": repo.head, "url": f"{shop}/pull/123"}
    forge = ForgeClient(kasmon.home / "bin", "gh", {"pr list": [], "pr view": pull, "pr create": f"{shop}/pull/124\n"})
    kasmon.environment["PATH"] = f"{forge.folder}:{kasmon.environment['PATH']}"
    yield


def stop_fix(run: PageRun) -> None:
    (run.kasmon.home / "shop-worktrees" / "fix" / "more.txt").write_text("more\n")
    assert 0 == run.kasmon("stop", "fix").code


def start_three(run: PageRun) -> None:
    """Sessions whose branches begin from `main`; those of the sections before have these names."""
    kasmon = run.kasmon
    repo = Repo(kasmon.folder, commits=0)
    assert 0 == kasmon("stop", "docs", "search").code
    for name in ("fix", "docs", "search"):
        assert 0 == kasmon("rm", name).code
        kasmon.new(name, "", "--worktree", "--branch", f"{name}-2", "--dir", str(repo.folder))
        worktree = kasmon.json("show", name)["session"]["worktree"]
        repo.commit(f"{name}-2.txt", at=Path(worktree["path"]))


def run_plan(run: PageRun) -> None:
    (run.kasmon.folder / "tidy.toml").write_text(PLAN)
    done = run.kasmon("plan", "run", "tidy.toml", "--ci", "--yes")
    assert 0 == done.code, done.err


STORIES = {
    "docs/review.md": PageStory(
        fixture=three_turns,
        before={
            "kasmon comments fix-login": lambda run: run.kasmon("comment", "fix-login", "src/login.py:40", "And this?"),
            'kasmon comments fix-login edit 3fa9c1 "Read this from the config."': read_comment_ids,
            "kasmon hunks fix-login": lambda run: run.kasmon("wait", "fix-login", "--for", "idle"),
            "kasmon hunks fix-login revert --digest 5f0c2a91d3e47b86": read_digest,
        },
        acts=dict.fromkeys(
            (
                "kasmon undo fix-login",
                "kasmon undo fix-login --redo",
                "kasmon hunks fix-login revert src/login.py:12",
                "kasmon hunks fix-login undo",
            ),
            AGREE,
        ),
    ),
    "docs/worktrees.md": PageStory(
        fixture=repository,
        before={
            "kasmon finish fix --commit --squash --discard": stop_fix,
            "kasmon merge-plan fix docs search --dry-run": start_three,
            "kasmon merge-plan --plan tidy": run_plan,
        },
        acts=dict.fromkeys(
            (
                'kasmon finish fix --commit -m "Fix the login"',
                "kasmon finish fix --update rebase",
                "kasmon finish fix --update rebase --fetch",
                "kasmon finish fix --push",
                "kasmon finish fix --pr --draft",
                'kasmon merge-plan fix docs search --check "make test"',
                "kasmon merge-plan --plan tidy",
            ),
            AGREE,
        )
        | {"kasmon finish fix --commit --squash --discard": type_at(("else to cancel:", "fix\r"))},
    ),
}
