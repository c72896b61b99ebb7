"""Fetching the base as the user's own git does, with a transport that asks or never answers."""

import os
from pathlib import Path

import psutil
import pytest

from kasmon.errors import GitError, TimedOutError
from kasmon.supervisor.finish.branch_operations import BaseRemote, fetch, find_base_remote
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("no_git_config")
SOURCE = BaseRemote("origin", "main", "refs/remotes/origin/main")


@pytest.fixture
def transport(repo: Repo, tmp_path: Path) -> Path:
    """The program that git starts instead of ssh, to be written."""
    program = tmp_path / "ssh"
    repo.git("remote", "add", "origin", "ssh://host.invalid/shop")
    repo.git("config", "core.sshCommand", str(program))
    return program


def test_what_asks_for_a_password_finds_no_terminal(repo: Repo, transport: Path, tmp_path: Path) -> None:
    transport.write_text(f"#!/bin/sh\nps -o sid= -p $$ >{tmp_path}/sid\necho no key >&2\nexit 1\n")
    transport.chmod(0o755)

    with pytest.raises(GitError, match="cannot do 'fetch'"):
        fetch(repo.folder, SOURCE)

    assert os.getsid(0) != int((tmp_path / "sid").read_text())


def test_a_remote_that_does_not_answer_ends_the_fetch_and_ssh_and_changes_nothing(
    repo: Repo, transport: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    transport.write_text(f"#!/bin/sh\necho $$ >{pid}\nexec sleep 600\n")
    transport.chmod(0o755)
    before = repo.git("for-each-ref")

    with pytest.raises(TimedOutError, match="git fetch took longer than"):
        fetch(repo.folder, SOURCE, limit_s=1.0)

    until(lambda: not psutil.pid_exists(int(pid.read_text())), what="ssh has ended")
    assert before == repo.git("for-each-ref")


def test_the_base_is_fetched_from_its_upstream_and_not_from_the_remote_of_pushes(repo: Repo) -> None:
    for name in ("origin", "theirs"):
        repo.git("remote", "add", name, f"/nowhere/{name}")
        repo.git("update-ref", f"refs/remotes/{name}/develop", "HEAD")
    repo.git("branch", "--quiet", "--set-upstream-to=theirs/develop", "main")

    assert BaseRemote("theirs", "develop", "refs/remotes/theirs/develop") == find_base_remote(
        repo.folder, "refs/heads/main"
    )
