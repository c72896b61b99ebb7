"""Finishing the work of a session, on real repositories, through the command line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.cli_runner import Cli, Done
from tests.support.forge_client import ADDRESSES, ForgeClient
from tests.support.git_repo import Repo

SCRIPTED = ("--agent", "scripted", "--mode", "sdk")


@pytest.fixture
def repo(kasmon: Cli) -> Repo:
    (kasmon.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    return Repo(kasmon.home / "shop")


@pytest.fixture
def tree(kasmon: Cli, repo: Repo) -> Path:
    """The worktree of a session `fix`."""
    assert 0 == kasmon("new", "fix", *SCRIPTED, "--worktree", "--dir", str(repo.folder)).code
    return kasmon.home / "shop-worktrees" / "fix"


def hook(repo: Repo, name: str, text: str) -> None:
    file = repo.folder / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def finish(kasmon: Cli, *options: str) -> Done:
    return kasmon("finish", "fix", *options, "--yes")


def of_checkout(repo: Repo) -> tuple[str, ...]:
    files = sorted(path for path in repo.folder.iterdir() if path.is_file())
    return (
        repo.git("status", "--porcelain", "--ignored"),
        repo.git("ls-files", "--stage"),
        repo.git("for-each-ref"),
        repr([(path.name, path.read_bytes()) for path in files]),
    )


def test_without_an_action_finish_lists_the_open_work_and_changes_nothing(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)
    repo.commit("theirs.txt")
    (tree / "new.txt").write_text("new\n")
    before = of_checkout(repo)

    shown = kasmon("finish", "fix")
    listed = kasmon.json("finish", "fix")

    assert ["commit", "update", "push", "merge"] == [step["action"] for step in listed["steps"]]
    assert "kasmon/fix from main, 1 ahead, 1 behind, 1 change" in shown.out
    assert (None, before) == (listed["digest"], of_checkout(repo))


ACTOR = json.dumps(
    {
        "actor": {"session": "abcdefgh", "depth": 0, "machine": "far"},
        "limits": {"depth": 1, "minutes": 5},
        "name": "n" * 300,
    }
)


def test_an_empty_proposal_of_another_machine_is_a_proposal_and_lists_nothing(kasmon: Cli, tree: Path) -> None:
    done = kasmon("finish", "fix", "--propose=", f"--actor={ACTOR}", "--json")

    assert (2, "a proposal needs a text that says what was done.") == (done.code, done.json["error"]["message"])


def test_the_name_of_the_proposer_on_another_machine_is_limited(kasmon: Cli) -> None:
    assert 0 == kasmon("new", "fix", *SCRIPTED, f"--actor={ACTOR}").code
    assert 0 == kasmon("finish", "fix", "--propose=done", f"--actor={ACTOR}", "--json").code

    shown = kasmon("read", "fix", "--json").json
    assert "n" * 80 in str(shown)
    assert "n" * 81 not in str(shown)


def test_a_commit_is_the_users_has_all_changes_and_runs_the_hooks(kasmon: Cli, repo: Repo, tree: Path) -> None:
    hook(repo, "pre-commit", f"touch {kasmon.home}/ran")
    (tree / "file0.txt").write_text("changed\n")
    (tree / "new.txt").write_text("new\n")

    planned = kasmon("finish", "fix", "--commit", "-m", "Fix the login", "--dry-run")
    was_run = (kasmon.home / "ran").exists()
    done = finish(kasmon, "--commit", "-m", "Fix the login")

    assert 0 == done.code, done.err
    assert "your hooks run: pre-commit" in planned.out
    assert (False, True) == (was_run, (kasmon.home / "ran").exists())
    assert "Ann Fix the login" == repo.git("log", "-1", "--format=%an %s", at=tree)
    assert ("", "file0.txt\nnew.txt") == (
        repo.git("status", "--porcelain", at=tree),
        repo.git("diff", "--name-only", "HEAD~1", at=tree),
    )


def test_a_hook_that_refuses_a_commit_leaves_the_index_as_it_was(kasmon: Cli, repo: Repo, tree: Path) -> None:
    hook(repo, "pre-commit", "echo no >&2; exit 1")
    (tree / "new.txt").write_text("new\n")
    before = repo.git("status", "--porcelain", at=tree)

    done = finish(kasmon, "--commit")

    assert (69, True) == (done.code, "git cannot do 'commit'" in done.err)
    assert (before, repo.head) == (repo.git("status", "--porcelain", at=tree), repo.git("rev-parse", "HEAD", at=tree))


def test_a_commit_without_changes_is_reported(kasmon: Cli, tree: Path) -> None:
    done = finish(kasmon, "--commit")

    assert (0, "nothing to commit\n") == (done.code, done.out)


@pytest.mark.parametrize("how", ["rebase", "merge"])
def test_an_update_merges_the_base(kasmon: Cli, repo: Repo, tree: Path, how: str) -> None:
    repo.commit("mine.txt", at=tree)
    repo.commit("theirs.txt")

    done = finish(kasmon, "--update", how)

    assert 0 == done.code, done.err
    assert (tree / "theirs.txt").exists()
    assert {"rebase": 1, "merge": 2}[how] == int(repo.git("rev-list", "--count", "main..HEAD", at=tree))
    assert 0 == kasmon.json("finish", "fix")["branch"]["behind"]


@pytest.mark.parametrize("how", ["rebase", "merge"])
def test_an_update_with_conflicts_changes_nothing_unless_requested(
    kasmon: Cli, repo: Repo, tree: Path, how: str
) -> None:
    head = repo.commit("file0.txt", "mine\n", at=tree)
    repo.commit("file0.txt", "theirs\n")

    aborted = finish(kasmon, "--update", how)
    after = (repo.git("status", "--porcelain", at=tree), repo.git("rev-parse", "HEAD", at=tree))
    kept = finish(kasmon, "--update", how, "--conflicts", "keep")

    assert (4, True) == (aborted.code, "conflict in 'file0.txt'. It was not updated." in aborted.err)
    assert ("", head) == after
    assert (4, "UU file0.txt") == (kept.code, repo.git("status", "--porcelain", at=tree))
    assert "is unfinished" in finish(kasmon, "--merge").err


def test_conflicts_can_be_sent_to_the_agent(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("file0.txt", "mine\n", at=tree)
    repo.commit("file0.txt", "theirs\n")

    done = finish(kasmon, "--update", "merge", "--conflicts", "send", "--json")

    assert (4, ["file0.txt"]) == (done.code, done.json["left_conflicts"])
    assert "The merge of your branch kasmon/fix with main" in done.json["receipt"]["text"]


@pytest.fixture
def remote(repo: Repo, kasmon: Cli) -> Path:
    path = kasmon.home / "remote.git"
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(path))
    repo.git("remote", "add", "origin", str(path))
    repo.git("fetch", "--quiet", "origin")
    return path


def test_a_push_runs_its_hook_and_sets_the_upstream(kasmon: Cli, repo: Repo, remote: Path, tree: Path) -> None:
    hook(repo, "pre-push", f"touch {kasmon.home}/ran")
    head = repo.commit("mine.txt", at=tree)

    done = finish(kasmon, "--push")

    assert 0 == done.code, done.err
    assert head == repo.git("rev-parse", "refs/heads/kasmon/fix", at=remote)
    assert (kasmon.home / "ran").exists()
    branch = kasmon.json("finish", "fix")["branch"]
    assert ("origin/kasmon/fix", 0) == (branch["remote"], branch["unpushed"])


@pytest.mark.parametrize("base", ["main", "origin/main"])
def test_an_update_fetches_the_base_first_only_if_asked_and_moves_no_branch(
    kasmon: Cli, repo: Repo, remote: Path, base: str
) -> None:
    assert 0 == kasmon("new", "fix", *SCRIPTED, "--base", base, "--dir", str(repo.folder)).code
    tree = kasmon.home / "shop-worktrees" / "fix"
    repo.commit("mine.txt", at=tree)
    other = kasmon.home / "other"
    repo.git("clone", "--quiet", str(remote), str(other))
    theirs = repo.commit("theirs.txt", at=other)
    repo.git("push", "--quiet", "origin", "main:main", "main:more", at=other)
    before = of_checkout(repo)

    unfetched = finish(kasmon, "--update", "rebase")
    planned = kasmon("finish", "fix", "--update", "rebase", "--fetch", "--dry-run")
    untouched = of_checkout(repo)
    done = finish(kasmon, "--update", "rebase", "--fetch")

    assert (0, before) == (unfetched.code, untouched), unfetched.err
    assert "fetch main from origin, with your credentials" in planned.out
    assert (0, theirs) == (done.code, repo.git("rev-parse", "HEAD~", at=tree)), done.err
    assert f"updated from origin/main ({theirs[:12]})" in done.out
    assert (repo.head, theirs, "") == (
        repo.git("rev-parse", "main"),
        repo.git("rev-parse", "origin/main"),
        repo.git("branch", "--remotes", "--list", "*/more"),
    )


def test_a_fetch_that_fails_or_gets_a_base_of_two_histories_changes_nothing(
    kasmon: Cli, repo: Repo, remote: Path, tree: Path
) -> None:
    head = repo.commit("mine.txt", at=tree)
    (tree / "new.txt").write_text("new\n")
    repo.commit("local.txt")
    other = kasmon.home / "other"
    repo.git("clone", "--quiet", str(remote), str(other))
    repo.commit("theirs.txt", at=other)
    repo.git("push", "--quiet", "origin", "main", at=other)

    unclear = finish(kasmon, "--commit", "--update", "merge", "--fetch")
    remote.rename(kasmon.home / "away.git")
    failed = finish(kasmon, "--commit", "--update", "merge", "--fetch")

    assert (4, True) == (unclear.code, "'main' and 'origin/main' each have commits" in unclear.err)
    assert (69, True) == (failed.code, "git cannot do 'fetch'" in failed.err)
    assert (head, "?? new.txt") == (
        repo.git("rev-parse", "HEAD", at=tree),
        repo.git("status", "--porcelain", at=tree),
    )


def test_pushed_commits_are_replaced_only_on_request(kasmon: Cli, repo: Repo, remote: Path, tree: Path) -> None:
    pushed = repo.commit("mine.txt", at=tree)
    assert 0 == finish(kasmon, "--push").code
    repo.commit("theirs.txt")

    refused = finish(kasmon, "--update", "rebase", "--push")
    assert 0 == finish(kasmon, "--update", "rebase", "--rewrite").code
    unpushed = finish(kasmon, "--push")
    unchanged = repo.git("rev-parse", "refs/heads/kasmon/fix", at=remote)
    done = finish(kasmon, "--push", "--rewrite")

    assert (4, True) == (refused.code, "a rebase would replace those commits" in refused.err)
    assert (4, True) == (unpushed.code, "1 commit that the branch does not have, which a push" in unpushed.err)
    assert pushed == unchanged
    assert 0 == done.code, done.err
    assert repo.git("rev-parse", "HEAD", at=tree) == repo.git("rev-parse", "refs/heads/kasmon/fix", at=remote) != pushed


def test_without_a_remote_a_push_is_refused(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)

    assert "has no remote" in finish(kasmon, "--push").err


@pytest.mark.parametrize("how", ["--merge", "--squash", "--ff"])
@pytest.mark.parametrize("is_checked_out", [True, False])
def test_a_branch_is_merged_into_its_base_wherever_that_is_checked_out(
    kasmon: Cli, repo: Repo, tree: Path, how: str, is_checked_out: bool
) -> None:
    if how != "--ff":
        repo.commit("theirs.txt")
    if not is_checked_out:
        repo.git("switch", "--quiet", "-c", "other")
    base = repo.git("rev-parse", "main")
    repo.commit("mine1.txt", at=tree)
    head = repo.commit("mine2.txt", at=tree)
    (repo.folder / "untracked.txt").write_text("stays\n")
    (repo.folder / "file0.txt").write_text("stays too\n")

    done = finish(kasmon, how, "-m", "Fix it")

    assert 0 == done.code, done.err
    assert "" == repo.git("diff", "--name-only", head, "main", "--", "mine1.txt", "mine2.txt")
    assert {"--ff": 2, "--merge": 3, "--squash": 1}[how] == int(repo.git("rev-list", "--count", f"{base}..main"))
    assert ("stays\n", "stays too\n") == (
        (repo.folder / "untracked.txt").read_text(),
        (repo.folder / "file0.txt").read_text(),
    )
    assert is_checked_out == (repo.folder / "mine1.txt").exists()
    assert 2 == len(repo.git("worktree", "list").splitlines())
    assert how != "--squash" or "Fix it" == repo.git("log", "-1", "--format=%s", "main")


@pytest.mark.parametrize("work", ["changed", "untracked", "ignored", "staged", "folder"])
@pytest.mark.parametrize("how", ["--merge", "--squash", "--ff", "--take-over"])
def test_files_of_a_checkout_that_are_not_committed_are_never_touched(
    kasmon: Cli, repo: Repo, tree: Path, work: str, how: str
) -> None:
    (repo.folder / ".git" / "info" / "exclude").write_text("*.log\nout\n")
    repo.commit("file0.txt", "two\n", at=tree)
    (tree / "new.txt").write_text("theirs\n")
    (tree / "x.log").write_text("theirs\n")
    (tree / "out").mkdir()
    (tree / "out" / "a").write_text("theirs\n")
    repo.git("add", "--force", ".", at=tree)
    repo.git("commit", "--quiet", "-m", "more", at=tree)
    name = {"changed": "file0.txt", "untracked": "new.txt", "ignored": "x.log", "staged": "s.txt", "folder": "out"}[
        work
    ]
    (repo.folder / name).write_text("mine\n")
    if work == "staged":
        repo.git("add", "s.txt")
    before = of_checkout(repo)

    done = finish(kasmon, how)

    assert (4, True) == (done.code, str(repo.folder) in done.err), done.err
    assert name in done.err
    assert before == of_checkout(repo)


def test_a_merge_with_conflicts_is_refused_and_changes_nothing(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("file0.txt", "mine\n", at=tree)
    repo.commit("file0.txt", "theirs\n")
    before = of_checkout(repo)

    done = finish(kasmon, "--merge")

    assert (4, True, before) == (done.code, "conflicts in 'file0.txt'" in done.err, of_checkout(repo))


def test_a_hook_that_refuses_a_squashed_commit_leaves_the_checkout_as_it_was(
    kasmon: Cli, repo: Repo, tree: Path
) -> None:
    repo.commit("mine.txt", at=tree)
    (repo.folder / "file0.txt").write_text("stays\n")
    hook(repo, "commit-msg", "exit 1")
    before = of_checkout(repo)

    assert 69 == finish(kasmon, "--squash").code
    assert before == of_checkout(repo)


def test_changes_are_applied_to_the_checkout_without_a_commit(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)
    head = repo.head

    done = finish(kasmon, "--take-over")

    assert 0 == done.code, done.err
    assert (head, "A  mine.txt") == (repo.head, repo.git("status", "--porcelain"))


def test_uncommitted_work_is_not_lost_by_a_merge(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)
    (tree / "new.txt").write_text("new\n")

    assert "has 1 uncommitted change, which would be left behind. Add --commit." in finish(kasmon, "--merge").err
    assert 0 == finish(kasmon, "--commit", "--merge").code
    assert (repo.folder / "new.txt").exists()


def test_an_agent_in_the_changed_checkout_is_named_and_part_of_the_plan(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)
    digest = kasmon.json("finish", "fix", "--merge", "--dry-run")["digest"]
    folder = repo.folder / "src"
    folder.mkdir()
    assert 0 == kasmon("new", "there", *SCRIPTED, "--dir", str(folder)).code
    kasmon("wait", "there", "--for", "idle")

    merged = kasmon("finish", "fix", "--merge", "--digest", digest)
    shown = kasmon("finish", "fix", "--take-over", "--dry-run")
    several = kasmon("merge-plan", "fix", "--dry-run")
    pushed = kasmon.json("finish", "fix", "--commit", "--dry-run")

    warning = f"the agent 'there' (idle) works in {str(repo.folder)!r}, whose files change under it"
    assert (4, True) == (merged.code, "Nothing was done" in merged.err)
    assert (True, True, []) == (warning in shown.out, warning in several.out, pushed["warnings"])


@pytest.mark.parametrize("moved", ["head", "file", "base", "checkout", "nothing"])
def test_a_plan_is_carried_out_only_as_long_as_nothing_changed(kasmon: Cli, repo: Repo, tree: Path, moved: str) -> None:
    repo.commit("mine.txt", at=tree)
    (tree / "new.txt").write_text("new\n")
    options = ("--commit", "--merge")
    digest = kasmon.json("finish", "fix", *options, "--dry-run")["digest"]
    match moved:
        case "head":
            repo.git("commit", "--quiet", "--allow-empty", "-m", "more", at=tree)
        case "file":
            (tree / "new.txt").write_text("newer\n")
        case "base":
            repo.commit("theirs.txt")
        case "checkout":
            (repo.folder / "own.txt").write_text("own\n")
        case _:
            pass
    before = repo.head

    done = kasmon("finish", "fix", *options, "--digest", digest)

    assert (0 if moved == "nothing" else 4) == done.code, done.err
    assert (moved == "nothing") == (before != repo.head)
    assert 4 == kasmon("finish", "fix", "--commit", "--merge", "--digest", digest).code, "once only"


def test_without_a_terminal_nothing_is_done_without_consent(kasmon: Cli, repo: Repo, tree: Path) -> None:
    (tree / "new.txt").write_text("new\n")

    done = kasmon("finish", "fix", "--commit")

    assert (4, True) == (done.code, "--digest" in done.err)
    assert "?? new.txt" == repo.git("status", "--porcelain", at=tree)
    code, shown = kasmon.terminal("finish", "fix", "--commit", typed=[("anything else to cancel:", "yes\r")])
    assert (0, "") == (code, repo.git("status", "--porcelain", at=tree)), shown


def test_failed_checks_of_a_pull_request_are_sent_to_the_agent(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.git("remote", "add", "origin", ADDRESSES["gh"])
    ForgeClient(kasmon.home / "bin", "gh")
    path = f"{kasmon.home}/bin:{os.environ['PATH']}"

    shown = kasmon("finish", "fix", "--fix", "--dry-run", PATH=path)
    left = kasmon("finish", "fix", PATH=path)
    sent = kasmon("finish", "fix", "--fix", "--json", PATH=path)

    assert (0, True) == (shown.code, "> E  assert 1 == 2" in shown.out), shown.err
    assert "fix        #7 changes requested, checks failed: test: `kasmon finish" in left.out
    assert "Of your pull request #7, checks failed and reviewers commented." in sent.json["receipt"]["text"]
    assert 2 == kasmon("finish", "fix", "--fix", "--push", PATH=path).code


def discard(kasmon: Cli, *options: str) -> Any:
    kasmon("stop", "fix")
    planned = kasmon("finish", "fix", "--discard", *options, "--dry-run", "--json")
    assert 0 == planned.code, planned.err
    digest = json.loads(planned.out)["digest"]
    return kasmon.json("finish", "fix", "--discard", *options, "--digest", digest, "--confirm-name", "fix")


def test_a_discard_is_confirmed_by_name_and_names_the_backup(kasmon: Cli, repo: Repo, tree: Path) -> None:
    committed = repo.commit("mine.txt", "committed\n", at=tree)
    (tree / "staged.txt").write_text("staged\n")
    repo.git("add", "staged.txt", at=tree)
    (tree / "staged.txt").write_bytes(b"then changed\r\n")
    (tree / "file0.txt").unlink()
    (tree / "new.txt").write_text("new\n")
    kasmon("stop", "fix")

    assert 4 == kasmon("finish", "fix", "--discard", "--yes").code
    digest = kasmon.json("finish", "fix", "--discard", "--dry-run")["digest"]
    unnamed = kasmon("finish", "fix", "--discard", "--digest", digest)
    assert (4, True) == (unnamed.code, "--confirm-name fix does exactly this" in unnamed.err)
    assert 4 == kasmon("finish", "fix", "--discard", "--digest", digest, "--confirm-name", "other").code
    _, refused = kasmon.terminal("finish", "fix", "--discard", typed=[("to cancel:", "yes\r")])
    is_there = tree.exists()
    code, shown = kasmon.terminal("finish", "fix", "--discard", typed=[("to cancel:", "kasmon/fix\r")])

    assert (True, 0, False) == (is_there, code, tree.exists()), refused + shown
    assert "" == repo.git("branch", "--list", "kasmon/*")
    [bundle] = (kasmon.home / "s" / "kasmon" / "discarded").iterdir()
    assert 0o600 == bundle.stat().st_mode & 0o777
    assert (True, True) == (bundle.name in shown.replace("\r\n", ""), committed[:12] in shown)
    repo.git("fetch", "--quiet", str(bundle), "refs/*:refs/back/*")
    files = "refs/back/kasmon/files"
    assert "committed" == repo.git("show", f"{committed}:mine.txt")
    assert ("then changed", "staged") == (
        repo.git("show", f"{files}:staged.txt"),
        repo.git("show", f"{files}^2:staged.txt"),
    )
    assert "mine.txt\nnew.txt\nstaged.txt" == repo.git("ls-tree", "--name-only", files)


def test_an_empty_answer_discards_nothing_where_no_branch_is_checked_out(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.git("checkout", "--quiet", "--detach", at=tree)
    kasmon("stop", "fix")

    code, shown = kasmon.terminal("finish", "fix", "--discard", typed=[("to cancel:", "\r")])

    assert (4, True) == (code, tree.exists()), shown
    assert None is discard(kasmon)["kept"]
    assert "kasmon/fix" in repo.git("branch", "--list", "kasmon/*")


def test_nothing_is_stored_of_a_discarded_branch_that_is_elsewhere(kasmon: Cli, repo: Repo, tree: Path) -> None:
    repo.commit("mine.txt", at=tree)
    assert 0 == finish(kasmon, "--merge").code

    assert (None, False) == (discard(kasmon)["kept"], tree.exists())


def test_a_commit_that_only_the_log_of_a_worktree_has_is_stored(kasmon: Cli, repo: Repo, tree: Path) -> None:
    left = repo.commit("left.txt", at=tree)
    repo.git("reset", "--quiet", "--hard", "HEAD~1", at=tree)

    done = discard(kasmon)
    repo.git("fetch", "--quiet", done["kept"], "refs/*:refs/back/*")

    assert left == repo.git("rev-parse", f"refs/back/kasmon/log/{left}")


def test_a_worktree_in_use_or_with_ignored_files_is_not_discarded(kasmon: Cli, repo: Repo, tree: Path) -> None:
    (repo.folder / ".git" / "info" / "exclude").write_text("*.log\n")
    running = kasmon("finish", "fix", "--discard", "--dry-run")
    kasmon("stop", "fix")
    (tree / "x.log").write_text("log\n")
    refused = kasmon("finish", "fix", "--discard", "--dry-run")

    assert (4, True) == (running.code, "still runs in" in running.err)
    assert (4, True) == (refused.code, "git ignores 1 file: 'x.log', which would be deleted" in refused.err)
    discard(kasmon, "--ignored", "*.log")
    assert not tree.exists()


def test_a_session_in_a_worktree_of_the_users_own_is_finished_and_its_branch_stays(kasmon: Cli, repo: Repo) -> None:
    tree = kasmon.home / "mine"
    repo.git("worktree", "add", "-q", "-b", "mine", str(tree))
    kasmon("new", "fix", *SCRIPTED, "--dir", str(tree))
    (tree / "new.txt").write_text("new\n")

    shown = kasmon("show", "fix").out
    listed = kasmon.json("ls")["sessions"][0]["branch"]
    (tree / "new.txt").rename(kasmon.home / "aside")
    left = kasmon.json("finish", "fix")["steps"]
    (kasmon.home / "aside").rename(tree / "new.txt")
    done = finish(kasmon, "--commit", "--ff")
    assert 0 == done.code, done.err
    kasmon("stop", "fix")
    discard(kasmon)

    assert f"branch mine, from main ({repo.git('rev-parse', 'main~')[:12]}), of {repo.folder}" in shown
    assert ("mine", 1) == (listed["name"], listed["untracked"])
    assert [("remove", True)] == [(step["action"], " --discard` removes" in step["command"]) for step in left]
    assert repo.git("rev-parse", "mine") == repo.head
    assert (False, "new") == (tree.exists(), (repo.folder / "new.txt").read_text().strip())


def test_a_session_in_no_worktree_is_refused(kasmon: Cli) -> None:
    kasmon.new("plain")

    assert "works in no git worktree" in kasmon("finish", "plain").err


@pytest.fixture
def gh(kasmon: Cli, repo: Repo, remote: Path) -> Path:
    """A scripted `gh`; the file that gets its arguments."""
    address, calls = "https://github.com/Me/shop.git", kasmon.home / "gh.calls"
    repo.git("remote", "set-url", "origin", address)
    repo.git("config", f"url.{remote}.insteadOf", address)
    program = kasmon.home / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{calls}\n[ "$2" = list ] && echo "[]" || echo https://github.com/Me/shop/pull/7\n'
    )
    program.chmod(0o755)
    kasmon.environment["PATH"] = f"{program.parent}:{kasmon.environment['PATH']}"
    return calls


def test_a_pull_request_is_created_once_against_the_real_base(kasmon: Cli, repo: Repo, remote: Path, gh: Path) -> None:
    repo.git("push", "--quiet", str(remote), "main:refs/heads/develop")
    repo.git("fetch", "--quiet", "origin")
    options = ("--worktree", "--base", "origin/develop", "--dir", str(repo.folder))
    assert 0 == kasmon("new", "fix", *SCRIPTED, *options).code
    tree = kasmon.home / "shop-worktrees" / "fix"
    head = repo.commit("mine.txt", at=tree)

    looked_at = kasmon.json("finish", "fix")
    planned = kasmon("finish", "fix", "--pr", "--dry-run")
    before = gh.read_text().splitlines()
    done = finish(kasmon, "--pr", "--draft", "-m", "Fix the login")

    assert (0, 0) == (done.code, finish(kasmon, "--pr").code), done.err
    assert "create a pull request of kasmon/fix against develop" in planned.out
    assert (None, 1) == (looked_at["pull_request"], len(before))
    [created] = [line for line in gh.read_text().splitlines() if line.startswith("pr create")]
    assert "--head kasmon/fix --base develop --title Fix the login" in created
    assert "--draft" in gh.read_text()
    assert head == repo.git("rev-parse", "refs/heads/kasmon/fix", at=remote)
    assert 7 == kasmon.json("show", "fix")["session"]["branch"]["pull_request"]
    assert "#7 draft exists" in kasmon("finish", "fix", "--pr", "--dry-run").out


def test_a_base_that_the_remote_does_not_have_gets_no_pull_request(kasmon: Cli, repo: Repo, gh: Path) -> None:
    repo.git("branch", "local")
    assert 0 == kasmon("new", "fix", *SCRIPTED, "--base", "local", "--dir", str(repo.folder)).code
    repo.commit("mine.txt", at=kasmon.home / "shop-worktrees" / "fix")

    done = finish(kasmon, "--pr")

    assert (4, True) == (done.code, "'local', which is not a branch of the remote 'origin'" in done.err)
    assert not gh.exists()
