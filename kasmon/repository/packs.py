"""Move commits between two repositories as git packs, without refs. Calls block; use a thread.

A pack holds objects only, so the other side names no ref here. Reading one runs no program of either repository.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from kasmon.errors import GitError
from kasmon.repository.own_git import run_git

OF: Final = "commits of another machine"


def build_pack(repo: Path, commits: Sequence[str], excluded: Sequence[str], pack: Path) -> None:
    """Write the objects of *commits* and their history into the new file *pack*, without those that *excluded* have.

    Args:
        repo: the git folder of a repository.
        commits: full ids of commits.
        excluded: ids that the reader has with all their history; those that *repo* does not have are ignored.
        pack: the reader needs the objects of *excluded* to read it.

    Raises:
        GitError: if the repository does not have it completely, such as a shallow or partial clone.
    """
    lines = "\n".join([*commits, *(f"^{each}" for each in find_commits(repo, excluded))])
    options = ("--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet")
    with pack.open("xb") as file, run_git(repo, "pack-objects", *options, of=OF) as (stdin, stdout):
        _send(stdin, lines)
        shutil.copyfileobj(stdout, file, 1 << 20)


def read_pack(repo: Path, commits: Sequence[str], pack: Path, *, trusted: bool, limit_bytes: int) -> None:
    """Add the objects in *pack* to *repo*, so that it has *commits* with all their history; no ref changes.

    Args:
        repo: the git folder of a repository.
        commits: full ids of commits.
        pack: a file from `build_pack`.
        trusted: the content of the objects is not checked.
        limit_bytes: a larger pack is refused.

    Raises:
        GitError: if the pack is damaged or too large, misses an object, or has one that git would refuse to check out:
            a file `.git`, for example.
    """
    options = ["--stdin", "--fix-thin", f"--max-input-size={limit_bytes}", *([] if trusted else ["--strict"])]
    with pack.open("rb") as file, run_git(repo, "index-pack", *options, of=OF) as (stdin, stdout):
        shutil.copyfileobj(file, stdin, 1 << 20)
        stdin.close()
        stdout.read()
    if missing := [commit for commit in commits if not has_history(repo, commit)]:
        raise GitError(f"store {OF}", f"they do not include the commit {missing[0]!r} with all that it needs")


def has_history(repo: Path, commit: str) -> bool:
    """Whether *repo* has *commit*, and all objects of its history that no ref of it leads to."""
    if find_commits(repo, (commit,)) != (commit,):
        return False
    try:
        with run_git(repo, "rev-list", "--objects", "--quiet", "--stdin", "--not", "--all", of=OF) as (stdin, stdout):
            _send(stdin, commit)
            stdout.read()
    except GitError:
        return False
    return True


def find_commits(repo: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Return those of the full *ids* that are commits in *repo*, in their order."""
    with run_git(repo, "cat-file", "--batch-check=%(objectname) %(objecttype)", of=OF) as (stdin, stdout):
        _send(stdin, "\n".join(ids))
        answers = stdout.read().decode("ascii", "replace").splitlines()
    return tuple(each for each, answer in zip(ids, answers, strict=False) if answer == f"{each} commit")


def _send(stdin: IO[bytes], text: str) -> None:
    stdin.write(f"{text}\n".encode())
    stdin.close()
