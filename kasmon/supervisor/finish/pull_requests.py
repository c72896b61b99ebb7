"""Pull requests of GitHub by `gh`, merge requests of GitLab by `glab`, with the user's own credentials. Calls block.

Documented at https://cli.github.com/manual and https://docs.gitlab.com/cli/mr/. What they answer is stored for each
repository: it is asked again after a minute at the earliest, and later after each failure.
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kasmon.errors import KasmonError, RefusedError, UnavailableError
from kasmon.model.commands import SessionWorktree
from kasmon.paths import Paths, private_folder, read_json, write_private
from kasmon.repository.branch import BranchState, PullRequest
from kasmon.repository.git import git, git_folders
from kasmon.sanitize import clean_line
from kasmon.store.file_lock import lock
from kasmon.supervisor.worktrees.branch_state import HEADS, REMOTES, BranchStates
from kasmon.supervisor.worktrees.pull_request import run_client

INTERVAL_S: Final = 60.0
"""A repository is asked at most once in so many seconds."""
LONGEST_S: Final = 3600.0
"""The longest wait after failures, in seconds; each failure doubles it."""
MOST: Final = 100
"""How many pull requests are read, the newest."""
MOST_CHECKS: Final = 5
INSTALL: Final = {"gh": "https://cli.github.com", "glab": "https://gitlab.com/gitlab-org/cli"}
GH_FIELDS: Final = "number,url,state,isDraft,baseRefName,headRefName,headRefOid,reviewDecision,statusCheckRollup"
NUMBER: Final = re.compile(r"https?://\S+/(?:pull|merge_requests)/(\d+)\s*$")
FAILED: Final = frozenset({"FAILURE", "ERROR", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED", "STARTUP_FAILURE"})
PASSED: Final = frozenset({"SUCCESS", "NEUTRAL", "SKIPPED"})


class _KnownRequests(msgspec.Struct, frozen=True, kw_only=True):
    asked_at: float = 0.0
    failures: int = 0
    why: str = ""
    """Why the last call failed."""
    requests: tuple[PullRequest, ...] = ()


def stored_pull_request(paths: Paths, path: Path, branch: str) -> PullRequest | None:
    """Return the newest pull request of *branch* that was read before. It asks nothing."""
    return _newest(_load(stored_file(paths, path)), branch)


def read_branches(paths: Paths, trees: Iterable[SessionWorktree]) -> dict[str, BranchState]:
    """Return the states of *trees* by their paths, with the numbers of the pull requests that were read before."""
    states = dict(BranchStates().read(trees))
    for path, state in states.items():
        if (known := stored_pull_request(paths, Path(path), state.name)) is not None:
            states[path] = msgspec.structs.replace(state, pull_request=known.number)
    return states


def find_pull_request(paths: Paths, path: Path, remote: str, branch: str, now: float) -> tuple[PullRequest | None, str]:
    """Return the newest pull request of *branch*, and why the last call failed.

    It is asked at most once a minute for each repository, and less after failures.
    """
    file = stored_file(paths, path)
    private_folder(file.parent)
    with lock(file.parent):
        stored = _load(file)
        wait_s = min(INTERVAL_S * 2**stored.failures, LONGEST_S)
        if not stored.asked_at <= now < stored.asked_at + wait_s:
            try:
                stored = _KnownRequests(asked_at=now, requests=_list(path, remote))
            except KasmonError as error:
                failures = min(stored.failures + 1, 10)
                stored = _KnownRequests(asked_at=now, failures=failures, why=str(error), requests=stored.requests)
            write_private(file, msgspec.json.encode(stored))
    return _newest(stored, branch), stored.why


def create_pull_request(
    paths: Paths, path: Path, remote: str, request: PullRequest, title: str, text: str
) -> PullRequest:
    """Create *request*, whose branch is pushed to *remote*, and return it with its number and address.

    Raises:
        UnavailableError: if the program is missing or fails.
        TimedOutError: if it takes too long; whether it was created is unknown then.
    """
    program = find_program(path, remote)
    if program == "gh":
        arguments = ["pr", "create", "--head", request.branch, "--base", request.base, "--title", title, "--body", text]
    else:
        arguments = ["mr", "create", "--source-branch", request.branch, "--target-branch", request.base]
        arguments += ["--title", title, "--description", text, "--yes"]
    output = run_client(path, program, *arguments, *(["--draft"] if request.is_draft else []))
    match = next((found for line in reversed(output.splitlines()) if (found := NUMBER.search(line))), None)
    if match is None:
        raise UnavailableError(
            f"`{program}` printed no address of the request that it created: {clean_line(output)[:300]!r}."
        )
    made = msgspec.structs.replace(request, number=int(match[1]), url=match[0].strip())
    file = stored_file(paths, path)
    private_folder(file.parent)
    with lock(file.parent):
        stored = _load(file)
        others = tuple(each for each in stored.requests if each.number != made.number)
        write_private(file, msgspec.json.encode(_KnownRequests(requests=(made, *others))))
    return made


def base_branch(path: Path, state: BranchState, remote: str) -> str:
    """Return the branch of *remote* that a pull request is made against: the base that the worktree began from.

    Raises `RefusedError` if the base is not a branch there.
    """
    name = ""
    if state.base_ref.startswith(f"{REMOTES}{remote}/"):
        name = state.base_ref.removeprefix(f"{REMOTES}{remote}/")
    elif state.base_ref.startswith(HEADS):
        upstream = git(path, "for-each-ref", "--format=%(upstream)", state.base_ref).strip()
        own = upstream.removeprefix(f"{REMOTES}{remote}/")
        name = own if own != upstream else state.base_ref.removeprefix(HEADS)
    if not name or not git(path, "for-each-ref", f"{REMOTES}{remote}/{name}").strip():
        raise RefusedError(
            f"the worktree began from {state.base_name!r}, which is not a branch of the remote {remote!r}.",
            hint="Push that branch first.",
        )
    return name


def find_program(path: Path, remote: str) -> str:
    """Return `gh` or `glab`: the one for the host of *remote*.

    Raises `UnavailableError` if that is not installed, or neither knows the host.
    """
    address = git(path, "config", "--get", f"remote.{remote}.url", fails=True).strip()
    host = ""
    if ":" in address:
        with contextlib.suppress(ValueError):  # it is no address
            host = urlsplit(address if "://" in address else f"ssh://{address.replace(':', '/', 1)}").hostname or ""
    if not host:
        raise UnavailableError(f"the remote {remote!r} is {address!r}, which has no pull requests.")
    if "gitlab" in host:
        program = "glab"
    elif host.startswith("github."):
        program = "gh"
    else:
        program = next((name for name in INSTALL if shutil.which(name) and _has_login(path, name, host)), "")
        if not program:
            raise UnavailableError(
                f"neither `gh` nor `glab` has a login for {host!r}.",
                hint=f"Run `gh auth login --hostname {host}` or `glab auth login --hostname {host}`.",
            )
    if shutil.which(program) is None:
        raise UnavailableError(
            f"`{program}` is not on PATH, so pull requests of {host!r} are unknown.",
            hint=f"Install it ({INSTALL[program]}) and run `{program} auth login`.",
        )
    return program


def _has_login(path: Path, program: str, host: str) -> bool:
    try:
        run_client(path, program, "auth", "status", "--hostname", host)
    except KasmonError:
        return False
    return True


def _list(path: Path, remote: str) -> tuple[PullRequest, ...]:
    """Read the pull requests of the repository, newest first."""
    program = find_program(path, remote)
    if program == "gh":
        arguments = ["pr", "list", "--state", "all", "--limit", str(MOST), "--json", GH_FIELDS]
    else:
        arguments = ["mr", "list", "--all", "--per-page", str(MOST), "--output", "json"]
    output = run_client(path, program, *arguments)
    try:
        rows = msgspec.json.decode(output, type=list[dict[str, Any]])
        found = [_of_github(row) if program == "gh" else _of_gitlab(row) for row in rows]
        return msgspec.json.decode(msgspec.json.encode(found), type=tuple[PullRequest, ...])  # each field has its type
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnavailableError(
            f"`{program} {arguments[0]} list` printed something else than expected: {error}."
        ) from error


def _of_github(row: dict[str, Any]) -> PullRequest:
    each = [
        (check.get("conclusion") or check.get("state") or "PENDING", check) for check in row["statusCheckRollup"] or ()
    ]
    results = {result for result, _ in each}
    failed = [
        clean_line(str(check.get("name") or check.get("context") or "")) for result, check in each if result in FAILED
    ]
    checks = "failed" if results & FAILED else "running" if results - PASSED else "passed" if results else ""
    return PullRequest(
        number=int(row["number"]),
        url=clean_line(row["url"]),
        branch=row["headRefName"],
        base=row["baseRefName"],
        state=row["state"].lower(),
        is_draft=bool(row["isDraft"]),
        head=row["headRefOid"],
        review=clean_line((row["reviewDecision"] or "").lower().replace("_", " ")),
        checks=checks,
        failed=tuple(dict.fromkeys(name for name in failed if name))[:MOST_CHECKS],
    )


def _of_gitlab(row: dict[str, Any]) -> PullRequest:
    status = (row.get("head_pipeline") or {}).get("status", "")
    known = {"success": "passed", "failed": "failed", "canceled": "failed", "skipped": "passed", "": ""}
    return PullRequest(
        number=int(row["iid"]),
        url=clean_line(row["web_url"]),
        branch=row["source_branch"],
        base=row["target_branch"],
        state={"opened": "open"}.get(row["state"], row["state"]),
        is_draft=bool(row["draft"]),
        head=row["sha"] or "",
        checks=known.get(status, "running"),
    )


def stored_file(paths: Paths, path: Path) -> Path:
    """Return the file of the repository of *path* with its pull requests; the file and its folder may be missing."""
    shared = str(git_folders(path)[1])
    return paths.pull_requests / f"{hashlib.sha256(os.fsencode(shared)).hexdigest()[:16]}.json"


def _load(file: Path) -> _KnownRequests:
    return read_json(file, _KnownRequests, _KnownRequests())


def _newest(stored: _KnownRequests, branch: str) -> PullRequest | None:
    found = [each for each in stored.requests if each.branch == branch]
    return max(found, key=lambda each: (each.state == "open", each.number), default=None)
