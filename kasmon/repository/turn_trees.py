"""The files of a worktree before and after each turn of a session, in a git repository of kasmon's own.

The user's repository is only read: kasmon's has its own index, objects and refs, and reads the user's objects as
alternates (see gitrepository-layout(5)). Files are stored byte by byte: no attribute, filter, hook or line-end setting
applies. Files that git ignores are left out, and so are repositories within the worktree. Calls block; use a thread.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import GitError, KasmonError, NotFoundError, RefusedError
from kasmon.paths import private_folder, write_private
from kasmon.repository.file_restore import ContentChange, put_file
from kasmon.repository.git import git, repository
from kasmon.repository.own_git import call_git, run_git
from kasmon.store.file_lock import lock

MOST_TURNS: Final = 200
"""How many turns are stored; the oldest are dropped first."""
TIDY_TURNS: Final = 20
"""After each so many turns, git drops unreferenced objects and packs the others."""
MOST_NEW_BYTES: Final = 32 << 20
"""A new file that is larger is left out, unless the user's git tracks it."""
MOST_NAMED: Final = 10
"""An error names at most so many files."""
MOST_DIFF_BYTES: Final = 16 << 20
"""A diff is cut after so much."""
RAW: Final = b"* -text !eol -ident !filter !working-tree-encoding\n"
"""The attributes of all files, which override those in the worktree: none converts a content."""
GITLINK: Final = b"160000"
"""The mode of a repository within another."""
OF: Final = "the files of turns"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn whose files are stored. The numbers count from 1, for each session."""

    number: int
    before: str
    """The commit in kasmon's repository with the files at its beginning."""
    after: str = ""
    """The same at its end; empty while it runs, and if the host ended first."""
    began_at: float = 0.0
    """In seconds since the epoch."""
    ended_at: float = 0.0
    """In seconds since the epoch; 0 without an end."""


class RestorePlan(NamedTuple):
    """How files are led from one stored state to another."""

    now: str
    """The commit with the files at the moment of the plan."""
    changes: tuple[ContentChange, ...]
    changed_since: tuple[str, ...]
    """Files among these that are no longer as they were then: the plan is not carried out."""


class TurnTrees:
    """The stored files of one session's turns; several processes may use the same store.

    Its methods raise `GitError`, `TimedOutError` or `OSError` if files cannot be stored or compared.
    """

    def __init__(self, store: Path, most_turns: int = MOST_TURNS) -> None:
        """*store*: the folder of kasmon's repository; `begin` creates it."""
        self.store = store
        self._most_turns = most_turns

    def begin(self, folder: Path) -> int | None:
        """Store the files of the worktree that *folder* is in, as a turn begins; return the turn's number.

        None if *folder* is in no git repository.
        """
        top = repository(folder)
        if top is None:
            return None
        private_folder(self.store)
        with lock(self.store):
            number = max((turn.number for turn in self.turns()), default=0) + 1
            self._update_refs(f"create refs/turns/{number}/before {self._commit(top)}")
            if number % TIDY_TURNS == 0:
                self._tidy(number)
        return number

    def end(self, folder: Path, number: int) -> None:
        """Store the files as turn *number* ends."""
        top = _top(folder, f"store the files of turn {number}")
        with lock(self.store):
            self._update_refs(f"update refs/turns/{number}/after {self._commit(top)}")

    def turns(self) -> tuple[Turn, ...]:
        """Return the stored turns, oldest first."""
        found: dict[int, dict[str, tuple[str, int]]] = {}
        for name, commit, at in self._refs("refs/turns/"):
            _, _, turn, side = name.split("/")
            found.setdefault(int(turn), {})[side] = (commit, at)
        turns = []
        for number, sides in sorted(found.items()):
            if "before" in sides:
                (before, began_at), (after, ended_at) = sides["before"], sides.get("after", ("", 0))
                turns.append(Turn(number=number, before=before, after=after, began_at=began_at, ended_at=ended_at))
        return tuple(turns)

    def turn(self, number: int | None = None) -> Turn:
        """Return turn *number*; the last one for None. Raises `NotFoundError` if it is not stored."""
        turns = self.turns()
        if number is None and turns:
            return turns[-1]
        for turn in turns:
            if turn.number == number:
                return turn
        which = "the last turn" if number is None else f"turn {number}"
        why = f"the stored turns are {turns[0].number} to {turns[-1].number}" if turns else "no turn is stored"
        raise NotFoundError(f"The files of {which} are unknown: {why}.")

    def now(self, folder: Path) -> str:
        """Return a commit with the files of the worktree that *folder* is in as they are now."""
        top = _top(folder, "store the current files")
        with lock(self.store):
            commit = self._commit(top)
            self._update_refs(f"update refs/now {commit}")
        return commit

    def diff(self, before: str, after: str, *options: str) -> bytes:
        """Return the changes between two commits as git prints them, cut after `MOST_DIFF_BYTES`; untrusted.

        It fails also if the user's repository no longer has an object of them. *options*: further ones of `git diff`.
        """
        arguments = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", *options, before, after, "--")
        with run_git(self.store, *arguments, may_be_cut=True, of=OF) as (_, stdout):
            return stdout.read(MOST_DIFF_BYTES)

    def plan(self, folder: Path, source: str, target: str) -> RestorePlan:
        """Return what has to be done in the worktree that *folder* is in to lead its files from *source* to *target*.

        Only files that differ between the two commits are concerned. Nothing is changed; the current files are stored.
        """
        now = self.now(folder)
        since = {change.name for change in self._changes(source, now)}
        changes = tuple(self._changes(source, target))
        kept = tuple(change.name for change in changes if _is_concerned(change.name, since))
        return RestorePlan(now=now, changes=changes, changed_since=kept)

    def restore(self, folder: Path, plan: RestorePlan) -> tuple[str, ...]:
        """Carry out *plan* in the worktree that *folder* is in; return the files that could not be changed, with why.

        A file that changed after *plan* was made stays as it is. The index, the commits and the branches of the user's
        repository stay as they are. `last_restore` tells how to take it back.

        Raises:
            RefusedError: if files of the plan changed before it was made; nothing is changed then.
            GitError, TimedOutError, OSError: if the files cannot be stored first; nothing is changed then.
        """
        if plan.changed_since:
            files = ", ".join(repr(name) for name in plan.changed_since[:MOST_NAMED])
            more = f" and {len(plan.changed_since) - MOST_NAMED} more" if plan.changed_since[MOST_NAMED:] else ""
            raise RefusedError(
                f"Nothing was restored: {files}{more} changed since.",
                hint="Restore the other files by hand, or undo what changed these first.",
            )
        top = _top(folder, "restore files")
        with lock(self.store):
            number = 1 + max((int(name.split("/")[2]) for name, _, _ in self._refs("refs/restores/")), default=0)
            self._update_refs(f"create refs/restores/{number}/before {plan.now}")
            wanted = sorted(plan.changes, key=lambda change: (bool(change.blob), change.name))  # deletions first
            failed = tuple(why for change in wanted if (why := self._put(top, change)))
            self._update_refs(f"create refs/restores/{number}/after {self._commit(top)}")
        return failed

    def last_restore(self) -> tuple[str, str]:
        """Return the commits before and after the last restore. Raises `NotFoundError` if there was none."""
        refs = {tuple(name.split("/")[2:]): commit for name, commit, _ in self._refs("refs/restores/")}
        for number in sorted({int(key[0]) for key in refs}, reverse=True):
            if (str(number), "after") in refs:
                return refs[str(number), "before"], refs[str(number), "after"]
        raise NotFoundError("Nothing was undone in this session's files, so nothing can be taken back.")

    def _changes(self, source: str, target: str) -> Iterator[ContentChange]:
        parts = self._git("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", source, target).split(b"\0")
        for facts, name in zip(parts[::2], parts[1::2], strict=False):
            _, mode, was, blob, _ = facts.decode("ascii").split(" ")
            yield ContentChange(os.fsdecode(name), was.strip("0") and was, blob.strip("0") and blob, int(mode, 8))

    def _put(self, top: Path, change: ContentChange) -> str:
        """Give one file its wanted content, unless it is another file now; return why that failed, or nothing."""
        content = self._git("cat-file", "blob", change.blob) if change.blob else b""
        try:
            put_file(top, change, content)
        except OSError as error:
            return f"{change.name!r}: {error.strerror or error}"
        return ""

    def _commit(self, top: Path) -> str:
        self._create(top)
        present, gone = self._changed(top)
        for option, names in (("--force-remove", gone), ("--add", present)):
            if names:
                arguments = ("update-index", "-z", "--remove", "--replace", option, "--stdin")
                self._git(*arguments, given=b"".join(os.fsencode(name) + b"\0" for name in names), work_tree=top)
        return self._ask("commit-tree", "-m", "files", self._ask("write-tree"))

    def _changed(self, top: Path) -> tuple[list[str], list[str]]:
        """Return the names of the files to store, new or again, and of those that are stored and gone.

        A repository can have many files, and each host would keep the memory: no name outlives its comparison here.
        """
        arguments = ("--modified", "--deleted", "--others", "--exclude-standard")
        changed = set(_split(self._names(top, *arguments)))
        stored, tracked = self._names(top), os.fsencode(git(top, "ls-files", "-z"))
        changed.update(_list_missing(_split(tracked), _split(stored)))
        known = {name for name in _split(stored) if name in changed}
        no_new = known.union(name for name in _split(tracked) if name in changed)
        folders: dict[str, bool] = {}
        present = {name for name in changed if is_file(top, os.fsdecode(name), folders, is_stored=name in no_new)}
        return sorted(map(os.fsdecode, present)), sorted(map(os.fsdecode, known - present))

    def _names(self, top: Path, *which: str) -> bytes:
        """Return the names of the stored files, or others by options of `git ls-files`; each ends with a zero byte."""
        return self._git("ls-files", "-z", *which, work_tree=top)

    def _create(self, top: Path) -> None:
        """Create the repository where it is missing; it reads the objects and ignore rules of the one of *top*."""
        if not self._is_created():
            kind = git(top, "rev-parse", "--show-object-format").strip()
            self._git("init", "--quiet", "--bare", "--template=", f"--object-format={kind}")
        objects = str((top / git(top, "rev-parse", "--git-path", "objects").removesuffix("\n")).resolve())
        if "\n" in objects or objects.startswith('"'):
            raise GitError(f"store {OF}", f"git cannot refer to the objects in {objects!r}")
        (self.store / "info").mkdir(mode=0o700, exist_ok=True)
        _write(self.store / "info" / "attributes", RAW)
        _write(self.store / "info" / "exclude", b"\n".join(_ignore_rules(top)))
        _write(self.store / "objects" / "info" / "alternates", os.fsencode(objects) + b"\n")
        if not (self.store / "index").exists():
            with contextlib.suppress(GitError):  # a partial clone may lack objects: files are stored one by one then
                self._read_head(top)

    def _is_created(self) -> bool:
        """Return whether git has created all of the repository; its HEAD is there before the folder of its objects."""
        return (self.store / "info" / "attributes").exists()

    def _read_head(self, top: Path) -> None:
        """Take what HEAD of *top* has for the stored files, as most of them are unchanged."""
        tree = git(top, "rev-parse", "--verify", "--quiet", "HEAD^{tree}", fails=True).strip()
        if not tree:
            return
        self._ask("read-tree", tree)
        nested = [entry.partition(b"\t")[2] for entry in _split(self._names(top, "--stage")) if entry[:6] == GITLINK]
        names = b"".join(name + b"\0" for name in nested)
        self._git("update-index", "-z", "--force-remove", "--stdin", given=names, work_tree=top)
        self._git("update-index", "-q", "--refresh", work_tree=top)

    def _tidy(self, last: int) -> None:
        """Drop the turns that are too old, and the objects that only they have."""
        old = (turn.number for turn in self.turns() if turn.number <= last - self._most_turns)
        refs = [name for name, _, _ in self._refs("refs/turns/")]
        dropped = {f"refs/turns/{number}/{side}" for number in old for side in ("before", "after")}
        self._update_refs(*(f"delete {name}" for name in refs if name in dropped))
        self._git("repack", "-a", "-d", "-l", "-q")
        self._git("prune", "--expire=now")

    def _refs(self, within: str) -> Iterator[tuple[str, str, int]]:
        """Yield the name, the commit and its time of each ref *within*."""
        if not self._is_created():
            return
        form = "--format=%(refname) %(objectname) %(committerdate:unix)"
        for line in self._ask("for-each-ref", form, within).splitlines():
            name, commit, at = line.split(" ")
            yield name, commit, int(at)

    def _update_refs(self, *lines: str) -> None:
        if lines:
            self._git("update-ref", "--stdin", given="".join(f"{line}\n" for line in lines).encode())

    def _ask(self, *arguments: str) -> str:
        return self._git(*arguments).decode("ascii", "replace").strip()

    def _git(self, *arguments: str, given: bytes = b"", work_tree: Path | None = None) -> bytes:
        return call_git(self.store, *arguments, given=given, work_tree=work_tree, of=OF)


def _top(folder: Path, what: str) -> Path:
    top = repository(folder)
    if top is None:
        raise GitError(what, f"{str(folder)!r} is in no repository")
    return top


def _is_concerned(name: str, others: set[str]) -> bool:
    """Whether *others* have *name*, a folder above it, or something within it."""
    parts = name.split("/")
    above = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return not above.isdisjoint(others) or any(other.startswith(f"{name}/") for other in others)


def is_file(top: Path, name: str, folders: dict[str, bool], *, is_stored: bool) -> bool:
    """Whether *name* is a file or a link that is to be stored.

    Args:
        top: the worktree's top.
        name: relative to it.
        folders: which folders are within the worktree, not behind a link; filled here.
        is_stored: it is stored or tracked already, so its size does not matter.
    """
    folder = os.path.dirname(name)  # noqa: PTH120 (thousands of names)
    if folder and not folders.setdefault(folder, _is_within(top, folder)):
        return False
    try:
        facts = os.lstat(os.path.join(top, name))  # noqa: PTH118 (thousands of names)
    except OSError:
        return False
    if stat.S_ISLNK(facts.st_mode):
        return True
    return stat.S_ISREG(facts.st_mode) and (is_stored or facts.st_size <= MOST_NEW_BYTES)


def _split(names: bytes) -> Iterator[bytes]:
    start = 0
    while (end := names.find(b"\0", start)) >= 0:
        yield names[start:end]
        start = end + 1


def _list_missing(names: Iterator[bytes], others: Iterator[bytes]) -> Iterator[bytes]:
    """Yield those of *names* that *others* lack; both are sorted."""
    other = next(others, None)
    for name in names:
        while other is not None and other < name:
            other = next(others, None)
        if other != name:
            yield name


def _is_within(top: Path, folder: str) -> bool:
    parts = Path(folder).parts
    return all(not top.joinpath(*parts[: count + 1]).is_symlink() for count in range(len(parts)))


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def _ignore_rules(top: Path) -> Iterator[bytes]:
    """Yield the ignore rules outside of the worktree: the repository's, then the user's own."""
    paths = [top / git(top, "rev-parse", "--git-path", "info/exclude").removesuffix("\n")]
    with contextlib.suppress(KasmonError):
        own = git(top, "config", "--type=path", "--get", "core.excludesFile", fails=True).removesuffix("\n")
        fallback = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
        paths.insert(0, Path(own) if own else fallback)
    for place in paths:
        with contextlib.suppress(OSError):
            yield place.read_bytes()
