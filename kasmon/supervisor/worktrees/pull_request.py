"""The commit of a pull request: `gh` names it, git fetches it. Both use the user's own credentials. Calls block.

`gh pr view --json` is documented at https://cli.github.com/manual/gh_pr_view. No ref of the repository changes.
"""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kasmon.errors import NotFoundError, TimedOutError, UnavailableError, UsageError
from kasmon.model.plan.plan import GIT_LOCAL
from kasmon.repository.git import git, git_as_user, knows
from kasmon.sanitize import clean_line

LIMIT_S: Final = 60.0
"""How long `gh` or `glab` may take, in seconds."""
REMOTE_URL: Final = re.compile(r"remote\.(.+)\.url")
NOTHING_CHANGES: Final = ("--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--refmap=")
"""Options of `git fetch` with which it updates no ref and no FETCH_HEAD."""


class _PullRequest(msgspec.Struct, rename="camel"):
    """The fields of `gh pr view --json` that are used here."""

    head_ref_oid: str
    url: str


def fetch_pull_request(folder: Path, number: str) -> str:
    """Return the head commit of pull request *number* of the repository that *folder* is in; fetch it if it is missing.

    Raises:
        UsageError: if *number* is no number.
        UnavailableError: if `gh` is not installed, or answers with an error.
        NotFoundError: if no remote is the repository of the pull request.
        TimedOutError: if `gh` or git takes too long.
        GitError: if git cannot fetch it.
    """
    if not (number.isascii() and number.isdecimal()):
        raise UsageError(f"the base 'pr:{number}' names no pull request.", hint="Write `pr:` and its number: `pr:123`.")
    found = _read(folder, number)
    if not re.fullmatch(r"[0-9a-f]{40,64}", found.head_ref_oid):
        raise UnavailableError(f"`gh` names no commit of pull request {number}: {found.head_ref_oid!r}.")
    if not knows(folder, f"{found.head_ref_oid}^{{commit}}"):
        remote = _find_remote(folder, found.url)
        git_as_user(folder, "fetch", *NOTHING_CHANGES, "--", remote, f"refs/pull/{number}/head")
        if not knows(folder, f"{found.head_ref_oid}^{{commit}}"):
            raise UnavailableError(
                f"the remote {remote!r} has another commit of pull request {number} than `gh` names.",
                hint="Try again: it has just changed.",
            )
    return found.head_ref_oid


def _read(folder: Path, number: str) -> _PullRequest:
    program = "gh"
    if shutil.which(program) is None:
        raise UnavailableError(
            f"cannot read pull request {number}: `gh` is not on PATH.",
            hint="Install it (https://cli.github.com) and run `gh auth login`, or give a branch: `--base origin/NAME`.",
        )
    said = run_client(folder, program, "pr", "view", number, "--json", "headRefOid,url")
    try:
        return msgspec.json.decode(said, type=_PullRequest)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"`gh pr view {number}` printed something else than expected: {error}.") from error


def run_client(folder: Path, program: str, *words: str) -> str:
    """Return what `gh` or `glab` prints in *folder*. It asks for nothing.

    Raises:
        UnavailableError: if it cannot be run, or fails.
        TimedOutError: if it takes longer than `LIMIT_S`.
    """
    variables = {name: value for name, value in os.environ.items() if name not in GIT_LOCAL}
    variables |= {"GH_PROMPT_DISABLED": "1", "NO_PROMPT": "1", "NO_COLOR": "1"}
    name = f"`{' '.join((program, *itertools.takewhile(lambda each: not each.startswith('-'), words)))}`"
    try:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(f"{name} took longer than {LIMIT_S:g} s.") from error
    except OSError as error:
        raise UnavailableError(f"cannot run {program!r}: {error.strerror or error}.") from error
    if done.returncode:
        said = clean_line(done.stderr.decode("utf-8", "replace").strip())[:300]
        raise UnavailableError(
            f"{name} failed: {said or 'it gave no reason'}.", hint=f"`{program} auth status` shows your login."
        )
    return done.stdout.decode("utf-8", "replace")


def _find_remote(folder: Path, url: str) -> str:
    """Return the remote that is the repository of the pull request at *url*: `https://HOST/OWNER/NAME/pull/1`."""
    wanted = ""
    with contextlib.suppress(ValueError):  # it is no address
        wanted = "/".join(urlsplit(url).path.strip("/").split("/")[:2]).casefold()
    lines = git(folder, "config", "--null", "--get-regexp", r"^remote\..*\.url$", fails=True).split("\0")
    for key, _, address in (line.partition("\n") for line in lines):
        path = address.casefold().rstrip("/").removesuffix(".git").replace(":", "/")
        if (match := REMOTE_URL.fullmatch(key)) and wanted and path.endswith(f"/{wanted}"):
            return match[1]
    raise NotFoundError(
        f"no remote of {str(folder)!r} is the repository {wanted!r} of the pull request.",
        hint="`git remote add` adds it.",
    )
