"""Sessions in worktrees of their own, by the command line."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import cast

import pytest

from kasmon.model.collisions import CollisionSummary
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import DashboardSettings
from tests.support.cli.cli_runner import Cli
from tests.support.git_repo import Repo
from tests.support.wait import until

SCRIPTED = ("--agent", "scripted", "--mode", "sdk")


@pytest.fixture
def repo(kasmon: Cli) -> Repo:
    return Repo(kasmon.home / "shop")


def test_a_session_in_a_new_worktree_shows_its_folder_and_its_base_commit(kasmon: Cli, repo: Repo) -> None:
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


def test_before_the_first_session_there_are_no_worktrees(kasmon: Cli) -> None:
    listed, missing = kasmon("worktrees"), kasmon("worktrees", "gc", "fix")

    assert (0, "No worktrees.\n", "") == (listed.code, listed.out, listed.err)
    assert (3, "kasmon: there is no worktree 'fix'. See `kasmon worktrees`.\n") == (missing.code, missing.err)


def test_the_open_work_of_a_branch_is_shown(kasmon: Cli, repo: Repo) -> None:
    assert 0 == kasmon("new", "fix", *SCRIPTED, "--worktree", "--dir", str(repo.folder)).code
    kasmon.new("other")
    path = kasmon.home / "shop-worktrees" / "fix"
    repo.commit("file0.txt", "mine\n", at=path)
    repo.commit("file0.txt", "theirs\n")
    (path / "new.txt").write_text("new\n")
    words = "1 ahead, 1 behind, 1 change, conflicts in 'file0.txt'"

    listed = {each["name"]: each["branch"] for each in kasmon.json("ls")["sessions"]}

    assert f"kasmon/fix: {words}" in kasmon("show", "fix").out
    assert words in kasmon("worktrees").out
    assert (1, 1, ["file0.txt"], 1) == tuple(
        listed["fix"][name] for name in ("ahead", "behind", "conflicts", "untracked")
    )
    assert listed["other"] is None
    assert listed["fix"] == kasmon.json("show", "fix")["session"]["branch"]
    assert listed["fix"] == kasmon.json("worktrees")["worktrees"][0]["branch"]


def test_a_second_agent_in_one_checkout_is_reported_by_new_and_on_its_row(kasmon: Cli, repo: Repo) -> None:
    here = ("--dir", str(repo.folder))

    assert "same checkout" not in kasmon("new", "first", *SCRIPTED, *here).err
    assert "same checkout" not in kasmon("new", "apart", *SCRIPTED, *here, "--worktree").err
    done = kasmon("new", "second", *SCRIPTED, *here)

    assert 0 == done.code, done.err
    assert "'second': first works in the same checkout; give it its own by --worktree." in done.err
    marks, notice = asyncio.run(read_dashboard(kasmon.paths, str(repo.folder)))
    assert "first and 1 more work in the same checkout." == notice
    assert ["first works in the same checkout"] == [mark.text for mark in marks.values()]
    assert [kasmon.json("show", "second")["session"]["id"]] == list(marks)


async def read_dashboard(of: Paths, folder: str) -> tuple[Mapping[SessionId, CollisionSummary], str]:
    """What a dashboard says of collisions on its rows, and of *folder* in its dialog for a new session."""
    gateway = LiveGateway(of)
    gateway.first()
    sweeps = cast(AsyncGenerator[Mapping[SessionId, CollisionSummary], None], gateway.collisions())
    settings = cast(AsyncGenerator[DashboardSettings, None], gateway.settings())
    try:
        await anext(settings)
        return await anext(sweeps), await gateway.folder_notice(folder)
    finally:
        await sweeps.aclose()
        await settings.aclose()
        gateway.close()


def test_a_taken_name_leaves_no_worktree_and_no_branch(kasmon: Cli, repo: Repo) -> None:
    kasmon.new("a", "")

    assert 4 == kasmon("new", "a", *SCRIPTED, "--worktree", "--dir", str(repo.folder)).code
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

    assert 1 == kasmon("new", "a", "--agent", "mine", "--base", "main", "--dir", str(repo.folder)).code
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
def test_the_config_applies_without_an_option(
    kasmon: Cli, repo: Repo, config: str, arguments: tuple[str, ...], has_worktree: bool
) -> None:
    file = kasmon.home / "c" / "kasmon" / "config.toml"
    file.parent.mkdir()
    file.write_text(config)

    session = kasmon.json("new", "a", *SCRIPTED, "--dir", str(repo.folder), *arguments)["session"]

    assert has_worktree == (session["worktree"] is not None)
    assert has_worktree == (session["workdir"] != str(repo.folder))


def test_the_default_of_the_config_applies_neither_to_other_folders_nor_to_programs(kasmon: Cli, repo: Repo) -> None:
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


def setup_of(repo: Repo, text: str) -> None:
    (repo.folder / ".kasmon.toml").write_text(text)


def agree(kasmon: Cli, repo: Repo) -> str:
    """Trust the config of *repo*; return what the person was shown."""
    code, shown = kasmon.terminal("trust", str(repo.folder), typed=[("Trust it?", "y\n")])
    assert 0 == code, shown
    return shown


def test_the_setup_of_a_repository_runs_once_it_is_trusted(kasmon: Cli, repo: Repo) -> None:
    (repo.folder / ".env").write_text("A=1\n")
    setup_of(repo, '[worktree]\nsetup = "cat .env >out; echo ready"\ncopy = [".env"]\nfolder = "/tmp"\n')
    untrusted = kasmon("new", "a", *SCRIPTED, "--worktree", "--dir", str(repo.folder))
    shown = agree(kasmon, repo)
    trusted = kasmon("new", "b", *SCRIPTED, "--worktree", "--dir", str(repo.folder))

    assert (0, 0) == (untrusted.code, trusted.code), trusted.err
    assert ".kasmon.toml' is ignored" in untrusted.err
    assert not (kasmon.home / "shop-worktrees" / "a" / "out").exists()
    assert "A=1\n" == (kasmon.home / "shop-worktrees" / "b" / "out").read_text()
    assert "A new worktree runs this command: cat .env >out; echo ready, for at most 600 s" in shown
    assert "It is ignored for worktree.folder" in shown
    notices = [event["text"] for event in kasmon.json("show", "b")["session"]["events"] if "text" in event]
    assert "ready" in notices


def test_a_setup_that_fails_starts_no_agent_and_waits_for_a_decision(kasmon: Cli, repo: Repo) -> None:
    setup_of(repo, '[worktree]\nsetup = "echo no network; test -e ../online"\n')
    agree(kasmon, repo)

    done = kasmon("new", "a", *SCRIPTED, "--worktree", "--dir", str(repo.folder))
    kasmon("new", "b", *SCRIPTED, "--worktree", "--dir", str(repo.folder))

    assert (1, True) == (done.code, "failed with exit code 1: no network" in done.err)
    assert "tries again, with --skip-setup it starts the agent anyway" in done.err
    session = kasmon.json("show", "a")["session"]
    assert ("ended", True) == (session["state"], "failed with exit code 1: no network" in session["end_why"])
    assert (kasmon.home / "shop-worktrees" / "a" / "file0.txt").exists()
    assert 1 == kasmon("restart", "a").code
    assert 0 == kasmon("restart", "a", "--skip-setup").code
    (kasmon.home / "shop-worktrees" / "online").touch()
    assert 0 == kasmon("restart", "b").code
    assert {"a", "b"} == {each["name"] for each in kasmon.json("ls")["sessions"] if each["state"] != "ended"}


def test_worktrees_are_listed_and_removed_only_with_consent_and_without_loss(kasmon: Cli, repo: Repo) -> None:
    setup_of(repo, '[worktree]\ncopy = [".env"]\nteardown = "echo gone >../torn"\n')
    (repo.folder / ".env").write_text("A=1\n")
    (repo.folder / ".git" / "info" / "exclude").write_text(".env\n")
    agree(kasmon, repo)
    for name in ("done", "busy", "dirty"):
        assert 0 == kasmon("new", name, *SCRIPTED, "--worktree", "--dir", str(repo.folder)).code
    root = kasmon.home / "shop-worktrees"
    (root / "dirty" / "new.txt").write_text("mine\n")
    for name in ("done", "dirty"):
        repo.git("config", f"branch.kasmon/{name}.remote", ".")
    assert 0 == kasmon("stop", "done", "dirty").code

    listed = {each["name"]: each for each in kasmon.json("worktrees")["worktrees"]}
    proposed = kasmon("worktrees", "gc")
    still = sorted(path.name for path in root.iterdir())
    cancelled, _ = kasmon.terminal("worktrees", "gc", typed=[("anything else to cancel:", "y\r")])
    still_after_y = sorted(path.name for path in root.iterdir())
    agreed, _ = kasmon.terminal("worktrees", "gc", typed=[("anything else to cancel:", "yes\r")])

    assert (0, still) == (agreed, still_after_y), cancelled
    assert {"done": True, "busy": False, "dirty": False} == {name: each["can_go"] for name, each in listed.items()}
    assert ("1 file is not committed.", True) == (listed["dirty"]["why"], "still runs in" in listed["busy"]["why"])
    assert "nothing was removed; --yes removes what can go." in proposed.err
    assert ["busy", "dirty", "done"] == still
    assert ["busy", "dirty", "torn"] == sorted(path.name for path in root.iterdir())
    assert ["kasmon/busy", "kasmon/dirty"] == repo.git(
        "branch", "--list", "--format=%(refname:short)", "kasmon/*"
    ).split()
    assert "branch.kasmon/dirty.remote" == repo.git("config", "--name-only", "--get-regexp", r"^branch\.")
    assert 4 == kasmon("worktrees", "gc", "dirty", "--yes").code
    assert 3 == kasmon("worktrees", "gc", "nothing").code
