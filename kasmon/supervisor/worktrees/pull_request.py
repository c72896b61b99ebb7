"""The commit of a pull request: `gh` names it, git fetches it. Both use the user's own credentials. Calls block.

`gh pr view --json` is documented at https://cli.github.com/manual/gh_pr_view. No ref of the repository changes.
"""

import contextlib
import itertools
import os
import re
import selectors
import shutil
import subprocess
import time
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
MOST_BYTES: Final = 4 << 20
"""How much of what they print is read."""
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
    output = run_client(folder, program, "pr", "view", number, "--json", "headRefOid,url")
    try:
        return msgspec.json.decode(output, type=_PullRequest)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"`gh pr view {number}` printed something else than expected: {error}.") from error


def run_client(folder: Path, program: str, *arguments: str, cuts: bool = False) -> str:
    """Return what `gh` or `glab` prints in *folder*; with *cuts*, the last `MOST_BYTES` of that. It asks for nothing.

    Raises:
        UnavailableError: if it cannot be run, fails, or without *cuts* prints more than `MOST_BYTES`.
        TimedOutError: if it takes longer than `LIMIT_S`.
    """
    variables = {name: value for name, value in os.environ.items() if name not in GIT_LOCAL}
    variables |= {"GH_PROMPT_DISABLED": "1", "NO_PROMPT": "1", "NO_COLOR": "1"}
    name = f"`{' '.join((program, *itertools.takewhile(lambda each: not each.startswith('-'), arguments)))}`"
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [program, *arguments], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        raise UnavailableError(f"cannot run {program!r}: {error.strerror or error}.") from error
    with process:
        try:
            printed, errors = _read_both(process, cuts=cuts)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimedOutError(f"{name} took longer than {LIMIT_S:g} s.") from error
            if isinstance(error, OverflowError):
                limit = f"more than {MOST_BYTES >> 20} MB, which is all that kasmon reads"
                hint = "Run it by hand in the worktree to see why it prints so much."
                raise UnavailableError(f"{name} printed {limit}.", hint=hint) from error
            raise
    if process.returncode:
        output = clean_line(errors.decode("utf-8", "replace").strip())[:300]
        raise UnavailableError(
            f"{name} failed: {output or 'it gave no reason'}.", hint=f"`{program} auth status` shows your login."
        )
    if len(printed) == MOST_BYTES:  # the first line may lack its beginning
        del printed[: printed.find(b"\n") + 1]
    return printed.decode("utf-8", "replace")


def _read_both(process: subprocess.Popen[bytes], *, cuts: bool) -> tuple[bytearray, bytearray]:
    """Return the output and the errors of *process* once it has ended, of each at most the last `MOST_BYTES`.

    Raises:
        OverflowError: if the output is longer, without *cuts*.
        TimeoutExpired: if it takes longer than `LIMIT_S`.
    """
    ends_at = time.monotonic() + LIMIT_S
    assert process.stdout is not None
    assert process.stderr is not None
    printed, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, printed)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            ready = selector.select(max(0.0, ends_at - time.monotonic()))
            if time.monotonic() >= ends_at:
                raise subprocess.TimeoutExpired(process.args, LIMIT_S)
            for key, _ in ready:
                block = os.read(key.fd, 1 << 16)
                if not block:
                    selector.unregister(key.fileobj)
                key.data.extend(block)
                if key.data is printed and not cuts and len(printed) > MOST_BYTES:
                    raise OverflowError
                del key.data[:-MOST_BYTES]
    process.wait(max(0.0, ends_at - time.monotonic()))
    return printed, errors


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
