"""Pull requests by scripted `gh` and `glab` that replay recorded answers."""

import json
import os
from pathlib import Path

import pytest

from kasmon.errors import UnavailableError
from kasmon.paths import Paths
from kasmon.repository.branch import PullRequest
from kasmon.supervisor.finish.pull_requests import (
    create_pull_request,
    find_program,
    find_pull_request,
    stored_pull_request,
)
from kasmon.supervisor.worktrees.pull_request import MOST_BYTES, run_client
from tests.support.forge_client import ADDRESSES, GITHUB, GITLAB
from tests.support.git_repo import Repo


class Program:
    """A `gh` or `glab` on PATH that notes its arguments and prints what it is told to."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.calls_file, self.answer = name, folder / f"{name}.calls", folder / f"{name}.answer"
        self.code = folder / f"{name}.code"
        folder.mkdir(exist_ok=True)
        self.calls_file.touch()
        self.says("")
        program = folder / name
        program.write_text(
            f"#!/bin/sh\necho \"$@\" >>'{self.calls_file}'\ncat '{self.answer}'; cat '{self.answer}' >&2\n"
            f"exit $(cat '{self.code}')\n"
        )
        program.chmod(0o755)

    def says(self, answer: object, code: int = 0) -> None:
        self.answer.write_text(answer if isinstance(answer, str) else json.dumps(answer))
        self.code.write_text(str(code))

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture(params=["gh", "glab"])
def program(request: pytest.FixtureRequest, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    repo.git("remote", "add", "origin", ADDRESSES[request.param])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return Program(tmp_path / "bin", request.param)


def test_the_pull_request_of_a_branch_is_read(repo: Repo, paths: Paths, program: Program) -> None:
    program.says(GITHUB if program.name == "gh" else GITLAB)

    found, why = find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1000.0)

    assert found is not None, why
    words = {"gh": "#7 open, checks failed, changes requested", "glab": "#3 draft"}
    assert (words[program.name], "main", "") == (found.words, found.base, why)
    assert found == stored_pull_request(paths, repo.folder, "kasmon/fix")
    assert (None, "") == find_pull_request(paths, repo.folder, "origin", "nothing", 1001.0)
    assert 1 == len(program.calls)


def test_a_repository_is_queried_once_a_minute_and_less_after_failures(
    repo: Repo, paths: Paths, program: Program
) -> None:
    program.says([])
    asked = []
    for at in (1000, 1030, 1059, 1060, 1119, 1120):
        find_pull_request(paths, repo.folder, "origin", "kasmon/fix", at)
        asked.append(len(program.calls))
    program.says("\x1b[31mHTTP 502\x1b[0m", 1)
    whys = []
    for at in (1180, 1299, 1300, 1539, 1540):
        whys.append(find_pull_request(paths, repo.folder, "origin", "kasmon/fix", at)[1])
        asked.append(len(program.calls))

    assert [1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6] == asked
    assert all("failed: HTTP 502" in why for why in whys)


def test_a_failure_keeps_the_last_result(repo: Repo, paths: Paths, program: Program) -> None:
    program.says(GITHUB if program.name == "gh" else GITLAB)
    before, _ = find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1000.0)
    program.says("offline", 1)

    after, why = find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1060.0)

    assert (before, True) == (after, "offline" in why)


@pytest.mark.parametrize("answer", ["", "{}", "[1]", '[{"number": 1}]', '[{"iid": "x"}]'])
def test_an_answer_that_never_comes_is_an_error(repo: Repo, paths: Paths, program: Program, answer: str) -> None:
    program.says(answer)

    found, why = find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1000.0)

    assert (None, True) == (found, "printed something else than expected" in why)


@pytest.mark.parametrize("is_draft", [True, False])
def test_a_pull_request_is_created_against_the_base_and_shown_at_once(
    repo: Repo, paths: Paths, program: Program, is_draft: bool
) -> None:
    url = {"gh": "https://github.com/Me/shop/pull/8", "glab": "https://gitlab.example.org/me/shop/-/merge_requests/8"}
    program.says(f"Creating\n{url[program.name]}\n")
    wanted = PullRequest(number=0, url="", branch="kasmon/fix", base="develop", is_draft=is_draft)

    made = create_pull_request(paths, repo.folder, "origin", wanted, "Fix it", "- a\n- b")

    assert (8, url[program.name]) == (made.number, made.url)
    [call, *_] = program.calls
    base = {"gh": "--base develop", "glab": "--target-branch develop"}
    assert (True, is_draft) == (base[program.name] in call, "--draft" in "".join(program.calls))
    assert made == stored_pull_request(paths, repo.folder, "kasmon/fix")


def test_without_the_program_it_is_reported_as_missing(
    repo: Repo, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("remote", "add", "origin", ADDRESSES["gh"])
    repo.git("remote", "add", "disk", str(tmp_path))
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.symlink_to("/usr/bin/git")
    monkeypatch.setenv("PATH", str(git.parent))

    _, why = find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1000.0)

    assert "`gh` is not on PATH" in why
    assert "gh auth login" in why
    with pytest.raises(UnavailableError, match="has no pull requests"):
        find_program(repo.folder, "disk")


@pytest.mark.parametrize("address", ["https://[x", "git@[x:y", "ssh://[::1"])
def test_an_invalid_address_has_no_pull_requests(repo: Repo, address: str) -> None:
    repo.git("remote", "add", "origin", address)

    with pytest.raises(UnavailableError, match="has no pull requests"):
        find_program(repo.folder, "origin")


def test_an_answer_with_other_types_is_an_error_and_is_not_repeated_at_once(
    repo: Repo, paths: Paths, program: Program
) -> None:
    row = (GITHUB if program.name == "gh" else GITLAB)[0]
    program.says([{**row, "headRefName": {}, "source_branch": []}])

    whys = [find_pull_request(paths, repo.folder, "origin", "kasmon/fix", 1000.0 + second)[1] for second in (0, 1)]

    assert ["printed something else" in why for why in whys] == [True, True]
    assert 1 == len(program.calls)


def test_at_most_some_megabytes_of_endless_output_are_read(repo: Repo, program: Program, tmp_path: Path) -> None:
    (tmp_path / "bin" / program.name).write_text("#!/bin/sh\nexec yes line\n")
    with pytest.raises(UnavailableError, match=f"`{program.name} mr list` printed more than 4 MB"):
        run_client(repo.folder, program.name, "mr", "list")

    program.says("first\n" + "line\n" * (MOST_BYTES // 4) + "last\n")
    (tmp_path / "bin" / program.name).write_text(f"#!/bin/sh\ncat '{program.answer}'\n")
    end = run_client(repo.folder, program.name, "run", "view", cuts=True)

    assert ("line\n", "line\nlast\n") == (end[:5], end[-10:])
    assert MOST_BYTES - 5 <= len(end) <= MOST_BYTES
