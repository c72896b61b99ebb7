"""Merging the branches of several sessions one by one, on real repositories, through the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.worktree.test_finish import SCRIPTED
from tests.support.cli.cli_runner import Cli
from tests.support.git_repo import Repo

pytestmark = pytest.mark.story


@pytest.fixture
def repo(kasmon: Cli) -> Repo:
    (kasmon.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    repo = Repo(kasmon.home / "shop")
    repo.commit("shared.txt", "".join(f"{number}\n" for number in range(9)))
    for name in ("one", "two", "three"):
        assert 0 == kasmon("new", name, *SCRIPTED, "--worktree", "--dir", str(repo.folder)).code
    return repo


def tree(repo: Repo, name: str) -> Path:
    return repo.folder.parent / "shop-worktrees" / name


def everything(repo: Repo) -> tuple[str, ...]:
    objects = sorted(str(path) for path in (repo.folder / ".git" / "objects").rglob("*"))
    return repo.git("for-each-ref"), repo.git("status", "--porcelain"), repo.git("worktree", "list"), repr(objects)


def change(repo: Repo, name: str, file: str, text: str) -> None:
    repo.commit(file, text, at=tree(repo, name))


def test_the_merge_order_names_conflicts_and_puts_branches_without_them_first(kasmon: Cli, repo: Repo) -> None:
    change(repo, "one", "shared.txt", "mine\n")
    change(repo, "two", "shared.txt", "other\n")
    change(repo, "three", "new.txt", "new\n")
    before = everything(repo)

    planned = kasmon.json("merge-plan", "one", "two", "three", "--dry-run")["plan"]
    shown = kasmon("merge-plan", "one", "two", "three", "--dry-run").out

    assert [("three", []), ("one", []), ("two", ["shared.txt"])] == [
        (step["name"], step["conflicts"]) for step in planned["steps"]
    ]
    assert [{"one": "one", "other": "two", "files": ["shared.txt"]}] == planned["pairs"]
    assert "one and two conflict in 'shared.txt'" in shown
    assert before == everything(repo)


def test_it_merges_one_by_one_and_stops_at_the_first_conflict(kasmon: Cli, repo: Repo) -> None:
    change(repo, "one", "shared.txt", "mine\n")
    change(repo, "two", "shared.txt", "other\n")
    change(repo, "three", "new.txt", "new\n")
    names = ("one", "two", "three")
    digest = kasmon.json("merge-plan", *names, "--dry-run")["plan"]["digest"]

    unasked = kasmon("merge-plan", *names)
    done = kasmon("merge-plan", *names, "--digest", digest, "--json")
    again = kasmon("merge-plan", *names, "--digest", digest)

    assert (4, True) == (unasked.code, f"--digest {digest}" in unasked.err)
    outcome = json.loads(done.out)["outcome"]
    assert (4, ["three", "one"], ["shared.txt"]) == (done.code, outcome["merged"], outcome["conflicts"])
    assert ("mine", True) == ((repo.folder / "shared.txt").read_text().strip(), (repo.folder / "new.txt").exists())
    assert (4, True) == (again.code, "Nothing was done" in again.err)
    assert "" == repo.git("status", "--porcelain")


@pytest.mark.parametrize("choice", ["skip", "send", "ask"])
def test_a_branch_that_conflicts_is_left_out_or_sent_to_its_agent(kasmon: Cli, repo: Repo, choice: str) -> None:
    change(repo, "one", "shared.txt", "mine\n")
    change(repo, "two", "shared.txt", "other\n")
    change(repo, "three", "shared.txt", "third\n")
    names = ("one", "two", "three")

    if choice == "ask":
        question = "Type skip to leave out {!r}, or send to also have its agent resolve that, anything else to cancel:"
        typed = [("to merge, anything else to cancel:", "yes\r")]
        typed += [(question.format(name), reply) for name, reply in (("two", "skip\r"), ("three", "no\r"))]
        code, shown = kasmon.terminal("merge-plan", *names, typed=typed)
        assert (4, True, True) == (code, "two: left out." in shown, "merged 1 of 3 branches." in shown), shown
    else:
        done = kasmon("merge-plan", *names, "--yes", "--on-conflict", choice, "--json")
        outcome = json.loads(done.out)["outcome"]
        sent = ["two", "three"] if choice == "send" else []
        assert (4, ["one"], ["two", "three"], sent, "") == (
            done.code, *(outcome[key] for key in ("merged", "left_out", "sent", "stopped_at")),
        )  # fmt: skip
    conflicts = [repo.git("status", "--porcelain", at=tree(repo, name)) for name in ("two", "three")]
    assert (["UU shared.txt"] * 2 if choice == "send" else ["", ""]) == conflicts
    if choice == "send":
        assert "has conflicts in:" in kasmon("show", "two", "--json").out


def test_a_branch_that_breaks_the_check_is_named_with_its_partner_and_not_merged(kasmon: Cli, repo: Repo) -> None:
    change(repo, "one", "a.txt", "a\n")
    change(repo, "two", "b.txt", "b\n")
    change(repo, "three", "c.txt", "c\n")
    check = "test ! -e a.txt -o ! -e c.txt"

    done = kasmon("merge-plan", "one", "two", "three", "--check", check, "--yes", "--json")

    outcome = json.loads(done.out)["outcome"]
    assert (4, ["one", "two"], ["one", "three"]) == (done.code, outcome["merged"], outcome["broken_by"]), done.err
    assert (True, True, False) == tuple((repo.folder / f"{name}.txt").exists() for name in "abc")
    assert 4 == len(repo.git("worktree", "list").splitlines())


def test_a_check_that_fails_on_the_base_merges_nothing(kasmon: Cli, repo: Repo) -> None:
    change(repo, "one", "a.txt", "a\n")
    before = repo.head

    done = kasmon("merge-plan", "one", "--check", "echo broken; false", "--yes")

    assert (4, True, before) == (done.code, "fails on 'main' already" in done.err, repo.head)
    assert 4 == len(repo.git("worktree", "list").splitlines())


def test_uncommitted_work_is_refused_and_a_branch_without_commits_is_skipped(kasmon: Cli, repo: Repo) -> None:
    change(repo, "one", "a.txt", "a\n")
    planned = kasmon.json("merge-plan", "one", "two", "--dry-run")["plan"]
    (tree(repo, "two") / "new.txt").write_text("new\n")

    refused = kasmon("merge-plan", "one", "two", "--dry-run")

    assert (["one"], ["two"]) == ([step["name"] for step in planned["steps"]], planned["skipped"])
    assert (4, True) == (refused.code, "1 uncommitted change in" in refused.err)
