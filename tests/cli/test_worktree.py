"""Sessions in worktrees of their own, by the command line."""

from pathlib import Path

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.git_repo import Repo
from tests.support.wait import until

SCRIPTED = ("--agent", "scripted", "--mode", "sdk")


@pytest.fixture
def repo(kasmon: Cli) -> Repo:
    return Repo(kasmon.home / "shop")


def test_a_session_in_a_new_worktree_says_where_it_works_and_from_which_commit(kasmon: Cli, repo: Repo) -> None:
    repo.commit("in/a.txt")

    done = kasmon("new", "fix login", *SCRIPTED, "--worktree", "--dir", str(repo.folder / "in"))
    path = kasmon.home / "shop-worktrees" / "fix-login"

    assert 0 == done.code, done.err
    assert f"{path} is on the new branch kasmon/fix-login, from main ({repo.head[:12]})." in done.err
    session = kasmon.json("show", "fix login")["session"]
    assert str(path / "in") == session["workdir"]
    assert {"path": str(path), "branch": "kasmon/fix-login", "is_new_branch": True, "base": repo.head} == {
        name: session["worktree"][name] for name in ("path", "branch", "is_new_branch", "base")
    }
    assert (
        f"branch kasmon/fix-login, from main ({repo.head[:12]}), of {repo.folder / 'in'}"
        in kasmon("show", "fix login").out
    )


def test_a_name_that_is_taken_leaves_no_worktree_and_no_branch(kasmon: Cli, repo: Repo) -> None:
    kasmon.new("a", "")

    done = kasmon("new", "a", *SCRIPTED, "--worktree", "--dir", str(repo.folder))

    assert 4 == done.code
    assert "" == repo.git("branch", "--list", "kasmon/*")
    assert not (kasmon.home / "shop-worktrees").exists()


def test_an_agent_that_does_not_start_leaves_no_worktree_and_restart_creates_it_again(kasmon: Cli, repo: Repo) -> None:
    flag = kasmon.home / "works"
    agent = kasmon.home / "agent"
    agent.write_text(f"#!/bin/sh\n[ -e {flag} ] || exit 1\nexec sleep 600\n")
    agent.chmod(0o755)
    config = kasmon.home / "c" / "kasmon" / "config.toml"
    config.parent.mkdir()
    config.write_text(
        f'limits.handshake_s = 1.0\n[agents.mine]\nprogram = "{agent}"\nacp = ["acp"]\nexecution_mode = "sdk"\n'
    )

    done = kasmon("new", "a", "--agent", "mine", "--base", "main", "--dir", str(repo.folder))

    assert 1 == done.code
    assert ("", False) == (repo.git("branch", "--list", "kasmon/*"), (kasmon.home / "shop-worktrees").exists())
    assert "ended" == kasmon.json("show", "a")["session"]["state"]
    flag.touch()
    kasmon("restart", "a")
    assert "kasmon/a" in repo.git("branch", "--list", "kasmon/*")


@pytest.mark.parametrize(
    ("config", "arguments", "has_worktree"),
    [
        ('worktree.default = "new"', (), True),
        ('worktree.default = "new"', ("--no-worktree",), False),
        ('worktree.default = "new"\nagents.scripted.worktree = false', (), False),
        ("agents.scripted.worktree = true", (), True),
        ("", ("--branch", "mine"), True),
    ],
)
def test_the_config_decides_where_nothing_is_asked(
    kasmon: Cli, repo: Repo, config: str, arguments: tuple[str, ...], has_worktree: bool
) -> None:
    file = kasmon.home / "c" / "kasmon" / "config.toml"
    file.parent.mkdir()
    file.write_text(config)

    session = kasmon.json("new", "a", *SCRIPTED, "--dir", str(repo.folder), *arguments)["session"]

    assert has_worktree == (session["worktree"] is not None)
    assert has_worktree == (session["workdir"] != str(repo.folder))


def test_the_default_of_the_config_concerns_neither_other_folders_nor_programs(kasmon: Cli, repo: Repo) -> None:
    file = kasmon.home / "c" / "kasmon" / "config.toml"
    file.parent.mkdir()
    file.write_text('worktree.default = "new"')

    assert kasmon.json("new", "a", *SCRIPTED)["session"]["worktree"] is None
    done = kasmon("new", "b", "--dir", str(repo.folder), "--json", "--", "sleep", "600")
    assert done.json["session"]["worktree"] is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--no-worktree", "--base", "main"), "require a new worktree"),
        (("--reuse-branch",), "requires --branch"),
        (("--reuse-branch", "--branch", "main", "--base", "main"), "excludes --base"),
        (("--worktree", "--agent", "shell@nowhere"), "cannot be created from here"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    kasmon: Cli, repo: Repo, arguments: tuple[str, ...], why: str
) -> None:
    agent = () if "--agent" in arguments else SCRIPTED

    done = kasmon("new", "a", *agent, "--dir", str(repo.folder), *arguments)

    assert (2, True) == (done.code, why in done.err)


def test_a_worktree_that_was_deleted_is_not_created_again_by_a_restart(kasmon: Cli, repo: Repo) -> None:
    session = kasmon.new("a", "", "--worktree", "--dir", str(repo.folder))
    kasmon("stop", session)
    path = Path(kasmon.json("show", session)["session"]["worktree"]["path"])
    repo.git("worktree", "remove", "--force", str(path))

    done = kasmon("restart", session)

    assert (4, True) == (done.code, "is gone" in done.err)
    assert not path.exists()
    repo.git("worktree", "add", "--force", str(path), "kasmon/a")
    assert 0 == kasmon("restart", session).code
    until(lambda: kasmon.json("show", session)["session"]["state"] != "ended")
