"""Move commits between two repositories as git packs, without refs. Calls block; use a thread.

A pack holds objects only, so the other side names no ref here. Reading one runs no program of either repository.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kasmon.errors import GitError
from kasmon.repository.own_git import call_git, run_git

OF: Final = "commits of another machine"


def build_pack(repo: Path, commits: Sequence[str], excluded: Sequence[str], pack: Path) -> None:
    """Write the objects of *commits* and their history into the new file *pack*, without those that *excluded* have.

    Args:
        repo: the git folder of a repository.
        commits: full ids of commits.
        excluded: ids that the reader has with all their history, and needs to read *pack*; unknown ones are ignored.

    Raises:
        GitError: if the repository does not have it completely, such as a shallow or partial clone.
    """
    revisions = (*commits, *(f"^{each}" for each in find_commits(repo, excluded)))
    options = ("--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet")
    with pack.open("xb") as file, run_git(repo, "pack-objects", *options, of=OF) as (stdin, stdout):
        stdin.write("".join(f"{each}\n" for each in revisions).encode())
        stdin.close()
        shutil.copyfileobj(stdout, file, 1 << 20)


def read_pack(repo: Path, commits: Sequence[str], pack: Path, *, trusted: bool, limit_bytes: int) -> None:
    """Add the objects in *pack* to *repo*, so that it has *commits* with all their history; no ref changes.

    Args:
        repo: the git folder of a repository.
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
    arguments = ("rev-list", "--objects", "--quiet", "--stdin", "--not", "--all")
    try:
        call_git(repo, *arguments, given=f"{commit}\n".encode(), of=OF)
    except GitError:
        return False
    return True


def find_commits(repo: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Return those of the full *ids* that are commits in *repo*, in their order."""
    given = "".join(f"{each}\n" for each in ids).encode()
    output = call_git(repo, "cat-file", "--batch-check=%(objectname) %(objecttype)", given=given, of=OF)
    answers = output.decode("ascii", "replace").splitlines()
    return tuple(each for each, answer in zip(ids, answers, strict=False) if answer == f"{each} commit")
