"""Reverts a hunk of a session's changes in the worktree, or stages it; the last of these can be undone. Calls block.

A hunk is found again in the diff as it is now, and refused if it is not in it as it was shown. git applies the patch,
which is kept in the session's folder for the undo.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.errors import GitError, NotFoundError, RefusedError, UnableError
from kasmon.model.commands import Mode
from kasmon.model.review.file_changes import split
from kasmon.model.review.hunks import ShownHunk, parse
from kasmon.model.session import Session
from kasmon.model.transcript.diff import HUNK
from kasmon.paths import Paths, private_folder, write_private
from kasmon.repository.git import git
from kasmon.sanitize import clean_line, clean_lines
from kasmon.store.file_lock import lock
from kasmon.supervisor.fleet.lookup import check_here
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.worktrees import changes, turn_changes

HunkAction = Literal["revert", "stage"]
STRICT: Final = {"apply.ignoreWhitespace": "no", "apply.whitespace": "nowarn"}
"""git's settings while it applies a patch, whatever the config has."""
APPLIES: Final = {"revert": ("--reverse",), "stage": ("--cached", "--unidiff-zero")}
UNDOES: Final = {"revert": (), "stage": ("--cached", "--unidiff-zero", "--reverse")}
"""Options of `git apply` for each action, and for its undo."""
CONVERTS: Final = ("filter", "working-tree-encoding", "ident")
"""Attributes by which git changes a file's content when it is staged."""
SUBMODULE: Final = " 160000"
"""How the line with the mode of a submodule ends."""
DONE: Final = {"revert": "reverted", "stage": "staged"}
MOST_PATCHES: Final = 100
"""So many actions can be undone, the last one first."""


class _RawHunk(NamedTuple):
    """A hunk as git prints it."""

    head: tuple[str, ...]
    """The lines of its file before the first hunk."""
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return split("\n".join((*self.head, *self.lines)))[0].name

    @property
    def ranges(self) -> tuple[int, int, int, int]:
        """The first line and the number of lines in the old file, then in the new one."""
        found = HUNK.match(self.lines[0])
        assert found is not None
        old, old_count, new, new_count = found.groups()
        return int(old), int(old_count or 1), int(new), int(new_count or 1)


class LastAction(NamedTuple):
    """What an undo would undo."""

    action: HunkAction
    name: str
    """The file; untrusted."""
    lines: tuple[str, ...]
    """The hunk, cleaned."""
    patch: Path


def list_hunks(paths: Paths, session: Session, turn: int | None) -> list[ShownHunk]:
    """Return the hunks of what *session* changed in this *turn*, or since its branch began. Raises as for the diff."""
    shown = changes.diff_of(session) if turn is None else turn_changes.turn_diff(paths, session, turn)[1]
    return [
        ShownHunk(name=file.name, head=file.head, lines=file.lines[hunk.start : hunk.end], turn=turn)
        for file in split(shown)
        if file.has_hunks
        for hunk in parse(file.lines).hunks
    ]


@dispatch
def revert_hunk(paths: Paths, session: Session, shown: ShownHunk) -> str:
    """Take *shown* back in the file in the worktree; return a sentence that says so.

    Raises:
        RefusedError: if the file is no longer as it was shown; nothing is changed then.
        SessionBusyError: if a turn is running.
        UnableError: if the file is a submodule; or as for the diff.
    """
    turn_changes.check_resting(session)
    top, hunk = _find(paths, session, shown)
    if any(line.endswith(SUBMODULE) for line in hunk.head):  # git applies no such patch to a worktree, and is silent
        raise UnableError(
            f"{clean_line(hunk.name)!r} is a submodule, so its hunk cannot be reverted.",
            hint="`git submodule update` checks out its recorded commit.",
        )
    return _carry_out(paths, session, top, "revert", _whole_patch(hunk), hunk.name)


class _Hunk(msgspec.Struct, frozen=True):
    """What `kasmon hunks --json` prints of one that was changed."""

    file: str


@revert_hunk.elsewhere
def _revert_hunk_there(paths: Paths, session: Session, shown: ShownHunk) -> str:
    return _change_there(paths, session, "revert", shown)


def _change_there(paths: Paths, session: Session, action: HunkAction, shown: ShownHunk) -> str:
    from kasmon.supervisor.machines.link_client import parse_reply, run_for  # only for other machines, as below

    turn = [] if shown.turn is None else [f"--turn={shown.turn}"]
    output = run_for(paths, session, "hunks", session.id, action, f"--digest={shown.digest}", *turn)
    return f"The hunk of {parse_reply(session.via, output, _Hunk).file} is {DONE[action]}."


@dispatch
def stage_hunk(paths: Paths, session: Session, shown: ShownHunk) -> str:
    """Add the unstaged changes of *shown* to the index; return a sentence that says so.

    Raises:
        RefusedError: if the file is no longer as it was shown, or has nothing unstaged there; nothing is changed then.
        UnableError: if it is the hunk of a turn: the index is compared with the current files. Or if git converts the
            file when it is staged.
        NotFoundError, GitError: as for the diff.
    """
    if shown.turn is not None:
        raise UnableError("a hunk of a turn cannot be staged.", hint="Stage it in the changes of the branch.")
    top, hunk = _find(paths, session, shown)
    name = hunk.name
    _check_unconverted(top, name)
    if any(line.startswith(("new file", "deleted file")) for line in hunk.head):
        is_tracked = bool(git(top, "ls-files", "-z", "--", f":(literal){name}"))
        if not is_tracked:
            return _carry_out(paths, session, top, "stage", _whole_patch(hunk), name)
    arguments = (*changes.PLAIN_DIFF, "-U0", "--no-renames", "--", f":(literal){name}")
    unstaged = [each for each in _hunks_of(git(top, *arguments)) if _is_within(each, hunk)]
    if not unstaged:
        raise RefusedError(f"nothing of this hunk of {clean_line(name)!r} is unstaged: it is staged or committed.")
    return _carry_out(paths, session, top, "stage", _partial_patch(unstaged), name)


@stage_hunk.elsewhere
def _stage_hunk_there(paths: Paths, session: Session, shown: ShownHunk) -> str:
    return _change_there(paths, session, "stage", shown)


def _check_unconverted(top: Path, name: str) -> None:
    """Raise `UnableError` if git stores the file *name* by a program or in another encoding: a patch skips that."""
    found = git(top, "check-attr", "-z", *CONVERTS, "--", name).split("\0")
    for attribute, value in zip(found[1::3], found[2::3], strict=False):
        if value not in ("unspecified", "unset", "false"):
            raise UnableError(
                f"git stores {clean_line(name)!r} by its attribute {attribute}={clean_line(value)}, so a hunk of it"
                " cannot be staged.",
                hint="`git add` stages the whole file.",
            )


def last_action(paths: Paths, session: Session) -> LastAction:
    """Return the last action on a hunk of *session* that was not undone. Raises `NotFoundError` if there is none."""
    check_here(session)
    patches = _patches(paths.hunks(session.id))
    if not patches:
        raise NotFoundError(f"no hunk of {session.name!r} was reverted or staged here.")
    patch = patches[-1]
    change = split(patch.read_text("utf-8", "surrogateescape"))[0]
    lines = tuple(clean_line(line) for line in change.lines)
    return LastAction("revert" if patch.stem.endswith("revert") else "stage", change.name, lines, patch)


def undo_hunk(paths: Paths, session: Session, last: LastAction) -> str:
    """Undo *last*; return a sentence that says so.

    Raises:
        NotFoundError, RefusedError: if it was undone, or another followed; or the file changed since. Nothing is
            changed then.
        SessionBusyError: if it was a revert, and a turn is running.
    """
    if last.action == "revert":
        turn_changes.check_resting(session)
    with lock(paths.hunks(session.id)):
        if last_action(paths, session) != last:
            raise _build_changed_error(last.name)
        _apply(changes.top_of(session), last.patch, UNDOES[last.action], last.name)
        last.patch.unlink()
    return f"The hunk of {clean_line(last.name)} is {'restored' if last.action == 'revert' else 'unstaged'}."


@dispatch
def undo_last_hunk(paths: Paths, session: Session) -> str:
    """Undo the last action on a hunk, whichever it is; return a sentence that says so. Raises as `undo_hunk`."""
    return undo_hunk(paths, session, last_action(paths, session))


@undo_last_hunk.elsewhere
def _undo_last_hunk_there(paths: Paths, session: Session) -> str:
    from kasmon.supervisor.machines.link_client import parse_reply, run_for

    output = run_for(paths, session, "hunks", session.id, "undo", "--yes")
    return f"The last change of {parse_reply(session.via, output, _Hunk).file} by a hunk is undone."


def _find(paths: Paths, session: Session, shown: ShownHunk) -> tuple[Path, _RawHunk]:
    """Return the top of the worktree, and *shown* as git prints it now."""
    if session.mode is Mode.INTERPRETER:
        raise UnableError(f"{session.name!r} works in a sandbox, so its hunks cannot be changed here.")
    top = changes.top_of(session)
    if shown.turn is None:
        whole = changes.diff(top, changes.fork(top))
    else:
        whole = turn_changes.raw_turn_diff(paths, session, shown.turn)[1].decode("utf-8", "surrogateescape")
    wanted = "\n".join(shown.lines).rstrip("\n")
    for hunk in _hunks_of(whole):
        is_its_file = clean_lines(hunk.head[0]) == shown.head
        if is_its_file and clean_lines("\n".join((*hunk.lines, ""))).rstrip("\n") == wanted:
            return top, hunk
    raise _build_changed_error(shown.name)


def _hunks_of(whole: str) -> Iterator[_RawHunk]:
    """Yield the hunks of *whole*, a diff from git, in which each line of a content begins with a sign."""
    head: list[str] = []
    lines: list[str] = []
    for line in whole.removesuffix("\n").split("\n"):
        begins_file, begins_hunk = line.startswith("diff --git "), HUNK.match(line) is not None
        if (begins_file or begins_hunk) and lines:
            yield _RawHunk(tuple(head), tuple(lines))
            lines = []
        if begins_file:
            head = [line]
        elif begins_hunk or lines:
            lines.append(line)
        elif head:
            head.append(line)
    if lines:
        yield _RawHunk(tuple(head), tuple(lines))


def _whole_patch(hunk: _RawHunk) -> str:
    """Return a patch of *hunk* alone, without a rename or a change of mode."""
    if any(line.startswith(("new file", "deleted file")) for line in hunk.head):
        return "\n".join((*hunk.head, *hunk.lines, ""))
    return "\n".join((*_plain_head(hunk), *hunk.lines, ""))


def _partial_patch(hunks: Sequence[_RawHunk]) -> str:
    """Return a patch of some *hunks* without context of one file; git finds their places by the new line numbers."""
    head = hunks[0].head
    if not any(line.startswith(("new file", "deleted file")) for line in head):
        head = _plain_head(hunks[0])
    lines: list[str] = []
    shift = 0
    for hunk in hunks:
        old, old_count, _, new_count = hunk.ranges
        new = old + shift + (old_count == 0) - (new_count == 0)
        lines += (f"@@ -{old},{old_count} +{new},{new_count} @@", *hunk.lines[1:])
        shift += new_count - old_count
    return "\n".join((*head, *lines, ""))


def _plain_head(hunk: _RawHunk) -> tuple[str, ...]:
    """Return the head of a patch that changes the content of the file with the new name."""
    new = next(line for line in hunk.head if line.startswith("+++ ")).removeprefix("+++ ")
    old = new.replace("b/", "a/", 1)
    first = hunk.head[0] if not any(line.startswith("rename ") for line in hunk.head) else ""
    first = first or f"diff --git {old.removesuffix(chr(9))} {new.removesuffix(chr(9))}"
    return first, f"--- {old}", f"+++ {new}"


def _is_within(unstaged: _RawHunk, hunk: _RawHunk) -> bool:
    """Whether *unstaged*, without context, changes lines of *hunk*; both have the current file as their new one."""
    _, _, first, count = hunk.ranges
    _, _, start, size = unstaged.ranges
    return (
        first - 1 <= start <= max(first, first + count - 1)
        if not size
        else start < first + count and first < start + size
    )


def _carry_out(paths: Paths, session: Session, top: Path, action: HunkAction, patch: str, name: str) -> str:
    folder = paths.hunks(session.id)
    private_folder(folder)
    with lock(folder):
        patches = _patches(folder)
        number = 1 + max((int(each.stem.partition("-")[0]) for each in patches), default=0)
        path = folder / f"{number:06}-{action}.new"
        write_private(path, patch.encode("utf-8", "surrogateescape"))
        try:
            _apply(top, path, APPLIES[action], name)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        path.rename(path.with_suffix(".patch"))
        for old in patches[: len(patches) + 1 - MOST_PATCHES]:
            with contextlib.suppress(OSError):
                old.unlink()
    return f"The hunk of {clean_line(name)} is {DONE[action]}."


def _apply(top: Path, patch: Path, options: Sequence[str], name: str) -> None:
    try:
        git(top, "apply", *options, "--", str(patch), settings=STRICT)
    except GitError as error:
        raise _build_changed_error(name, error.why) from error


def _build_changed_error(name: str, why: str = "") -> RefusedError:
    reason = f" ({clean_line(why)})" if why else ""
    return RefusedError(
        f"Nothing was changed: {clean_line(name)!r} is no longer as it was shown{reason}.", hint="Look at it again."
    )


def _patches(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.patch")) if folder.is_dir() else []
