"""The state of a session's worktree: its branch against its base and remote, and its uncommitted files. Calls block.

git only reads the repository: a trial merge writes its objects to a temporary folder.
"""

import concurrent.futures
import contextlib
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model.commands import SessionWorktree
from kasmon.paths import read_stamp
from kasmon.repository.branch import BranchState
from kasmon.repository.git import git, git_folders
from kasmon.sanitize import clean_line
from kasmon.supervisor.worktrees.unsaved_files import EVERYTHING, find_operation

AT_ONCE: Final = 4
"""How many worktrees are read in parallel: each read waits for git."""
MOST_FILES: Final = 20
"""At most this many files with conflicts are named."""
HEADS: Final = "refs/heads/"
REMOTES: Final = "refs/remotes/"


class _Commits(NamedTuple):
    """What follows from two commits alone."""

    ahead: int
    behind: int
    conflicts: tuple[str, ...] | None


class BranchStates:
    """Reads the states of worktrees, again only where something changed. Calls block and may come from any thread."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[tuple[object, ...], BranchState]] = {}
        self._commits: dict[tuple[str, str], _Commits] = {}
        self._unpushed: dict[tuple[str, str], int] = {}
        self._busy = threading.Lock()

    def read(
        self, trees: Iterable[SessionWorktree], changed: Collection[str] | None = None
    ) -> Mapping[str, BranchState]:
        """Return the state of each of *trees* that git can read, by its path.

        Args:
            changed: the paths of those whose files changed since the last call; None for all. A new commit, a changed
                index or a moved base is noticed without that.
        """
        wanted = {tree.path: tree for tree in trees}
        with self._busy, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda tree: self._read_status(tree, changed), wanted.values())
            statuses = [status for status in found if status is not None]
            refs: dict[Path, dict[str, str]] = {}
            for shared in {status.shared for status in statuses}:
                names = [name for status in statuses if status.shared == shared for name in status.refs]
                with contextlib.suppress(KasmonError, OSError):
                    refs[shared] = _refs(shared, names)
            readable = [status for status in statuses if status.shared in refs]
            list(pool.map(lambda status: self._complete(status, refs[status.shared]), readable))
            return {path: self._states[path][1] for path in wanted if path in self._states}

    def _read_status(self, tree: SessionWorktree, changed: Collection[str] | None) -> "_WorktreeStatus | None":
        """Return HEAD and the files of *tree*; None if nothing changed, or git cannot read it: it has no state then."""
        try:
            stamp = tuple(_stamp(tree))
            known = self._states.get(tree.path)
            if known is not None and known[0] == stamp and changed is not None and tree.path not in changed:
                return None
            self._states.pop(tree.path, None)
            return _query_status(tree, stamp)
        except (KasmonError, OSError):
            self._states.pop(tree.path, None)
            return None

    def _complete(self, status: "_WorktreeStatus", refs: Mapping[str, str]) -> None:
        """Store the state of what was looked at, which has the *refs* of its repository."""
        with contextlib.suppress(KasmonError, OSError):
            self._states[status.tree.path] = status.stamp, self._state(status, refs)

    def _state(self, status: "_WorktreeStatus", refs: Mapping[str, str]) -> BranchState:
        path, head = Path(status.tree.path), status.head
        base_ref = next((name for name in status.base_refs if name in refs), "")
        base = refs.get(base_ref, status.tree.base)
        commits = self._commits.get((base, head)) or _compare(path, base, head)
        self._commits[base, head] = commits
        remote = _find_pushed(status, base_ref, refs)
        remote_head = refs.get(remote, "")
        unpushed = 0 if remote else None
        if remote and head != remote_head:
            unpushed = self._unpushed.get((remote_head, head))
            if unpushed is None:
                unpushed = int(git(path, "rev-list", "--count", head, f"^{remote_head}"))
            self._unpushed[remote_head, head] = unpushed
        return BranchState(
            name=status.branch,
            head=head,
            base_name=status.tree.base_name,
            base_ref=base_ref,
            base=base,
            ahead=commits.ahead,
            behind=commits.behind,
            conflicts=commits.conflicts,
            operation=status.operation,
            remote=remote.removeprefix(REMOTES),
            remote_head=remote_head,
            unpushed=unpushed,
            **status.counts,
        )


class _WorktreeStatus(NamedTuple):
    """What is read in one worktree."""

    tree: SessionWorktree
    stamp: tuple[object, ...]
    shared: Path
    head: str
    branch: str
    upstream: str
    """The ref that git pushes the branch to; empty if there is none."""
    counts: dict[str, int]
    operation: str

    @property
    def base_refs(self) -> list[str]:
        """The refs that the base may be; a branch first: a session begins from the one that is checked out."""
        name = self.tree.base_name
        if name in ("", "HEAD", self.branch, self.tree.branch) or any(c in name for c in ":~^@*?["):
            return []
        return [f"{prefix}{name}" for prefix in (HEADS, "refs/tags/", REMOTES)]

    @property
    def refs(self) -> list[str]:
        """All refs that matter; a remote is any."""
        remotes = [self.upstream] if self.upstream else []
        return [*self.base_refs, *remotes, *([f"{REMOTES}*/{self.branch}"] if self.branch else [])]


def read_state(tree: SessionWorktree) -> BranchState:
    """Return the state of *tree*.

    Raises:
        GitError, TimedOutError: if git cannot read it.
        OSError: if it is gone.
    """
    status = _query_status(tree, ())
    return BranchStates()._state(status, _refs(status.shared, status.refs))


def _stamp(tree: SessionWorktree) -> Iterator[object]:
    """Yield what differs after a commit, a change of the index, and a move of the branch, of its base or its remote."""
    own, shared = git_folders(Path(tree.path))
    yield (own / "HEAD").read_bytes()
    remotes = [folder / tree.branch for folder in (shared / "refs" / "remotes").glob("*")]
    refs = [shared / prefix / tree.base_name for prefix in ("refs/heads", "refs/remotes", "refs/tags")]
    packed = (shared / "packed-refs", shared / "reftable" / "tables.list")
    for file in (own, own / "index", *packed, shared / HEADS / tree.branch, *refs, *remotes):
        yield read_stamp(file)


def _query_status(tree: SessionWorktree, stamp: tuple[object, ...]) -> _WorktreeStatus:
    path = Path(tree.path)
    counts = dict.fromkeys(("staged", "unstaged", "untracked", "unmerged"), 0)
    headers = {"branch.oid": "", "branch.head": "", "branch.upstream": ""}
    for line in git(path, "status", "--porcelain=v2", "--branch", "-z", *EVERYTHING).split("\0"):
        kind, _, rest = line.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            headers[key] = value
        elif kind == "1":
            counts["staged"] += rest[0] != "."
            counts["unstaged"] += rest[1] != "."
        elif kind in ("u", "?"):
            counts["unmerged" if kind == "u" else "untracked"] += 1
    own, shared = git_folders(path)
    upstream = headers["branch.upstream"]
    return _WorktreeStatus(
        tree=tree,
        stamp=stamp,
        shared=shared,
        head=headers["branch.oid"].replace("(initial)", ""),
        branch=headers["branch.head"].replace("(detached)", ""),
        upstream=f"{REMOTES}{upstream}" if upstream else "",
        counts=counts,
        operation=find_operation(own),
    )


def _refs(shared: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the refs that match *names* in the git folder *shared*, each with its commit."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    form = "--format=%(refname) %(objectname) %(*objectname)"
    lines = git(shared, "--git-dir", str(shared), "for-each-ref", form, *wanted).splitlines()
    parts = (line.split(" ") for line in lines)
    return {name: peeled or commit for name, commit, peeled in parts}


def _find_pushed(status: _WorktreeStatus, base_ref: str, refs: Mapping[str, str]) -> str:
    """Return the remote branch that holds what was pushed of a branch; empty if there is none."""
    if not status.branch:
        return ""
    remotes = [name for name in refs if name.startswith(REMOTES)]
    named = [name for name in remotes if name.removeprefix(REMOTES).partition("/")[2] == status.branch]
    candidates = [status.upstream, f"{REMOTES}origin/{status.branch}", *named]
    return next((name for name in candidates if name in refs and name != base_ref), "")


def _compare(path: Path, base: str, head: str) -> _Commits:
    if not head or head == base:
        return _Commits(0, 0, ())
    behind, ahead = git(path, "rev-list", "--left-right", "--count", f"{base}...{head}").split()
    return _Commits(int(ahead), int(behind), conflicts(path, base, head) if int(ahead) and int(behind) else ())


def conflicts(path: Path, one: str, other: str) -> tuple[str, ...] | None:
    """Return the files in which two commits conflict; None if git cannot merge them. The repository stays as it is."""
    objects = git_folders(path)[1] / "objects"
    with tempfile.TemporaryDirectory(prefix="kasmon-merge-") as folder:
        tree, files = merge_trees(path, one, other, (Path(folder), objects))
    return files if tree else None


def merge_trees(path: Path, one: str, other: str, new_objects: tuple[Path, Path]) -> tuple[str, tuple[str, ...]]:
    """Return the tree of two merged commits, empty if git cannot merge them, and the files that conflict.

    *new_objects*: as `git` takes it, so that the repository stays as it is.
    """
    arguments = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", one, other)
    tree, *files = git(path, *arguments, fails=True, new_objects=new_objects).split("\0")
    return tree, tuple(dict.fromkeys(clean_line(name) for name in files if name))[:MOST_FILES]
