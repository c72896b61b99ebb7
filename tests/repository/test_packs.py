"""Commits move between repositories as packs; what is damaged, hostile or too large is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError
from kasmon.repository.packs import build_pack, find_commits, has_history, read_pack
from tests.support.git_repo import Repo

LIMIT = 1 << 20


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "near", commits=3)


@pytest.fixture
def store(tmp_path: Path, repo: Repo) -> Path:
    """A bare repository that has the first commit."""
    store = tmp_path / "far.git"
    repo.git("init", "--quiet", "--bare", str(store))
    repo.git("push", "--quiet", str(store), "HEAD~2:refs/kasmon/first")
    return store


def at(repo: Repo) -> Path:
    return repo.folder / ".git"


def refs(repo: Repo, store: Path) -> str:
    return repo.git("for-each-ref", at=store)


def test_only_missing_objects_are_sent_and_no_ref_changes(repo: Repo, store: Path, tmp_path: Path) -> None:
    first, before = repo.git("rev-parse", "HEAD~2"), refs(repo, store)
    build_pack(at(repo), [repo.head], (first, "f" * 40), tmp_path / "thin")
    read_pack(store, [repo.head], tmp_path / "thin", trusted=False, limit_bytes=LIMIT)
    assert repo.git("rev-list", "--count", repo.head, at=store) == "3"
    assert refs(repo, store) == before
    assert int.from_bytes((tmp_path / "thin").read_bytes()[8:12], "big") == 4, "two commits, two trees"
    assert find_commits(store, (first, "0" * 40, repo.head)) == (first, repo.head)


def tree(repo: Repo, *entries: tuple[str, str, str]) -> str:
    """A tree as git itself would not write it: of modes, names and ids."""
    content = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(id_) for mode, name, id_ in entries)
    made = subprocess.run(
        ["git", "hash-object", "--literally", "-t", "tree", "-w", "--stdin"],
        cwd=repo.folder,
        input=content,
        capture_output=True,
        check=True,
    )
    return made.stdout.decode().strip()


def commit_of(repo: Repo, *entries: tuple[str, str, str]) -> str:
    return repo.git("commit-tree", "-p", repo.head, "-m", "hostile", tree(repo, *entries))


def git_folder(repo: Repo) -> str:
    blob = repo.git("rev-parse", "HEAD:file0.txt")
    return commit_of(repo, ("40000", ".git", tree(repo, ("100755", "post-checkout", blob))))


def parent_folder(repo: Repo) -> str:
    return commit_of(repo, ("40000", "..", repo.git("rev-parse", "HEAD^{tree}")))


def missing_file(repo: Repo) -> str:
    return commit_of(repo, ("100644", "a.txt", "e" * 40))


def hidden_link(repo: Repo) -> str:
    """A `.gitmodules` that is a symbolic link."""
    return commit_of(repo, ("120000", ".gitmodules", repo.git("rev-parse", "HEAD:file0.txt")))


@pytest.mark.parametrize("build", [git_folder, parent_folder, hidden_link], ids=lambda build: build.__name__)
def test_objects_that_git_would_not_check_out_are_refused(
    repo: Repo, store: Path, tmp_path: Path, build: Callable[[Repo], str]
) -> None:
    build_pack(at(repo), [repo.head], (), tmp_path / "good")
    read_pack(store, [repo.head], tmp_path / "good", trusted=False, limit_bytes=LIMIT)
    commit = build(repo)
    build_pack(at(repo), [commit], (), tmp_path / "bad")
    with pytest.raises(GitError):
        read_pack(store, [commit], tmp_path / "bad", trusted=False, limit_bytes=LIMIT)
    assert not find_commits(store, (commit,))


def damaged(content: bytes) -> bytes:
    return content[:-30] + bytes(10) + content[-20:]


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def empty(content: bytes) -> bytes:
    return b""


def no_pack(content: bytes) -> bytes:
    return b"# v2 git bundle\n" + content


@pytest.mark.parametrize("change", [damaged, cut, empty, no_pack], ids=lambda change: change.__name__)
def test_a_damaged_pack_is_refused(repo: Repo, store: Path, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    build_pack(at(repo), [repo.head], (), tmp_path / "good")
    (tmp_path / "bad").write_bytes(change((tmp_path / "good").read_bytes()))
    with pytest.raises(GitError):
        read_pack(store, [repo.head], tmp_path / "bad", trusted=True, limit_bytes=LIMIT)


def test_a_pack_without_the_commit_or_its_history_is_refused(repo: Repo, store: Path, tmp_path: Path) -> None:
    build_pack(at(repo), [repo.git("rev-parse", "HEAD~2")], (), tmp_path / "other")
    with pytest.raises(GitError, match=repo.head):
        read_pack(store, [repo.head], tmp_path / "other", trusted=True, limit_bytes=LIMIT)
    build_pack(at(repo), [repo.head], (repo.git("rev-parse", "HEAD~1"),), tmp_path / "gap")
    with pytest.raises(GitError):
        read_pack(store, [repo.head], tmp_path / "gap", trusted=True, limit_bytes=LIMIT)
    assert not has_history(store, repo.head)


def test_a_pack_over_the_limit_is_refused(repo: Repo, store: Path, tmp_path: Path) -> None:
    build_pack(at(repo), [repo.head], (), tmp_path / "pack")
    with pytest.raises(GitError):
        read_pack(store, [repo.head], tmp_path / "pack", trusted=True, limit_bytes=100)


def test_commits_that_miss_an_object_are_not_sent(repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(GitError):
        build_pack(at(repo), [missing_file(repo)], (), tmp_path / "pack")
