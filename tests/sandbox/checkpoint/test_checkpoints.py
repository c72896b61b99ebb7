"""Checkpoints of a folder that somebody hostile wrote: what is kept, what comes back, and what never happens."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.errors import GitError, NotFoundError, RefusedError, SandboxError
from kasmon.sandbox.checkpoint import checkpoints as module
from kasmon.sandbox.checkpoint import object_store, scan
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore, RetentionLimits
from kasmon.sandbox.checkpoint.manifest import FILE, RACY_NS, Manifest, ManifestEntry, find_unread, mark_unsettled
from kasmon.sandbox.checkpoint.scan import ScanBounds
from kasmon.sandbox.guest_client.protocol import SavedInterpreters

SAVED = SavedInterpreters(content=b"x = 42", kept=("python x",), lost=("python g (generator)",))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def points(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def settled(folder: Path) -> None:
    """Let all of *folder* be older than what may have changed within a tick."""
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)


def seen(folder: Path) -> dict[str, object]:
    """All that is in *folder*: kinds, modes, contents, times of files."""
    told: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        what = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            told[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            told[name] = ("folder", stat.S_IMODE(what.st_mode))
        else:
            told[name] = ("file", stat.S_IMODE(what.st_mode), path.read_bytes(), what.st_mtime_ns)
    return told


def filled(folder: Path) -> None:
    """All that git alone would not keep, and what could lead it astray."""
    (folder / "a.txt").write_text("one\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "secret").write_text("s")
    (folder / "secret").chmod(0o400)
    (folder / "empty" / "deeper").mkdir(parents=True)
    (folder / "empty" / "deeper").chmod(0o711)
    (folder / "closed").mkdir()
    (folder / "closed" / "x").write_text("x")
    (folder / "closed").chmod(0o555)
    (folder / ".gitignore").write_text("*\n")
    (folder / "ignored.o").write_bytes(bytes(range(256)))
    (folder / "crlf.txt").write_bytes(b"a\r\nb\n")
    (folder / ".gitattributes").write_text(
        "* text=auto eol=crlf filter=evil ident\n*.txt working-tree-encoding=UTF-16\n"
    )
    (folder / "to-nowhere").symlink_to("nowhere/at/all")
    (folder / "to-shadow").symlink_to("/etc/shadow")
    (folder / "a\nb").write_text("newline")
    (folder / 'quote"\\back').write_text("q")
    (folder / "..hidden").write_text("dots")
    (folder / "-rf").write_text("dash")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_text("no utf-8")
    (folder / "nested" / ".git" / "hooks").mkdir(parents=True)
    (folder / "nested" / ".git" / "config").write_text("[core]\n\tfsmonitor = touch /tmp/never\n")
    (folder / "nested" / ".git" / "HEAD").write_text("ref: refs/heads/x\n")
    (folder / "nested" / "file").write_text("in a nested repository")
    (folder / ".git").write_text("gitdir: /etc\n")
    (folder / "sub").mkdir()
    (folder / "sub" / ".GIT").write_text("also git's own")


def test_all_files_of_a_folder_are_restored_unchanged(workspace: Path, points: CheckpointStore) -> None:
    filled(workspace)
    before = seen(workspace)
    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "closed").chmod(0o755)
    for path in workspace.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (workspace / "a.txt").symlink_to("/etc/passwd")
    (workspace / "nested").write_text("a file now")
    inode = workspace.stat().st_ino

    restored = points.restore(first.id, str(workspace))

    assert before == seen(workspace)
    assert inode == workspace.stat().st_ino
    assert [] == [path.name for path in workspace.parent.iterdir() if path.name.startswith(".kasmon")]
    points.restore(restored.undo, str(workspace))
    assert {"a.txt", "nested"} == set(seen(workspace))


def test_a_restore_gives_no_setuid_or_setgid(workspace: Path, points: CheckpointStore) -> None:
    (workspace / "folder").mkdir()
    (workspace / "program").write_text("x")
    (workspace / "program").chmod(0o6755)
    (workspace / "folder").chmod(0o2755)
    point = points.create(str(workspace), 1, "after", SavedInterpreters())
    (workspace / "program").unlink()
    (workspace / "folder").rmdir()
    points.restore(point.id, str(workspace))

    assert [0o755, 0o755] == [(workspace / name).stat().st_mode & 0o7777 for name in ("program", "folder")]


def test_the_commit_of_a_turn_holds_its_files(workspace: Path, points: CheckpointStore) -> None:
    filled(workspace)
    first = points.create(str(workspace), 1, "after", SavedInterpreters())
    listed = run_git(points, "ls-tree", "-r", "-z", "--name-only", first.commit).split(b"\0")

    assert {b"a.txt", b"ignored.o", b"a\nb", b'quote"\\back', b"\xff\xfe", b"to-shadow", b"nested/file"} <= set(listed)
    assert b"a\r\nb\n" == run_git(points, "show", f"{first.commit}:crlf.txt")
    assert not [name for name in listed if b".git/" in name.lower() or name.lower().endswith(b".git")]
    assert b"" == run_git(points, "fsck", "--strict", "--no-dangling")


def test_a_link_is_stored_as_a_link_and_never_followed(
    workspace: Path, points: CheckpointStore, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("not yours")
    (workspace / "link").symlink_to(tmp_path / "outside")
    (workspace / "folder").symlink_to("/etc")
    point = points.create(str(workspace), 1, "after", SavedInterpreters())
    kept = run_git(points, "cat-file", "--batch-all-objects", "--batch")

    assert b"not yours" not in kept
    assert b"root:" not in kept
    points.fork(point.id, str(tmp_path / "fork"))
    assert {"link": ("link", str(tmp_path / "outside")), "folder": ("link", "/etc")} == seen(tmp_path / "fork")


def test_a_path_replaced_by_a_link_leads_nowhere(workspace: Path, points: CheckpointStore, tmp_path: Path) -> None:
    """The folder is looked at first and read later; in between its writer is quick."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("not yours")
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("mine")
    (workspace / "g").write_text("mine too")
    with scan.opened(str(workspace)) as top:
        found = scan.scan(top, ScanBounds())
        shutil.rmtree(workspace / "d")
        (workspace / "d").symlink_to(tmp_path / "outside")
        (workspace / "g").unlink()
        (workspace / "g").symlink_to(tmp_path / "outside" / "f")
        store = object_store.ObjectStore(points.folder / "git")
        files, _, left = store.store(top, found.files, ["d/f", "g"], "c1", 0.0, "x")

    assert {"d"} == set(files)
    assert {"d/f", "g"} == {each.path for each in left}


def test_a_special_file_is_named_and_never_opened(workspace: Path, points: CheckpointStore) -> None:
    os.mkfifo(workspace / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as bound:
        os.chdir(workspace)
        bound.bind("sock")
        (workspace / "f").write_text("x")
        point = points.create(str(workspace), 1, "after", SavedInterpreters())
    os.chdir("/")

    assert {
        "pipe (not a regular file: a pipe, a socket or a device)",
        "sock (not a regular file: a pipe, a socket or a device)",
    } == set(point.left)
    assert 1 == point.size_bytes


def test_no_program_of_the_folder_or_of_this_machine_runs(
    workspace: Path, points: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters, hooks, file watchers and attributes; in the folder's repository and in this user's own config."""
    canary = tmp_path / "canary"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    evil.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-auto-gc", "post-commit"):
        shutil.copy(evil, hooks / name)
    config = (
        f'[core]\nhooksPath={hooks}\nfsmonitor={evil}\nsshCommand={evil}\npager={evil}\n[filter "x"]\nclean={evil}\n'
        f'smudge={evil}\nrequired=true\n[diff]\nexternal={evil}\n[diff "x"]\ntextconv={evil}\ncommand={evil}\n'
        f"[gpg]\nprogram={evil}\n[commit]\ngpgSign=true\n[alias]\nfast-import=!{evil}\n"
    )
    (home / ".gitconfig").write_text(config)
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (workspace / ".git" / "config").write_text(config)
    (workspace / ".gitattributes").write_text("* filter=x diff=x\n")
    (workspace / "f").write_text("1\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    monkeypatch.setattr(module, "TIDY_AFTER", 1)
    monkeypatch.chdir(workspace)

    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "f").write_text("2\n")
    points.create(str(workspace), 1, "after", SavedInterpreters())
    assert "-1\n+2\n" in points.diff(1)
    points.restore(first.id, str(workspace))

    assert not canary.exists()


def test_the_guards_of_the_test_before_are_needed(tmp_path: Path) -> None:
    """git alone would run what such a folder brings along."""
    canary = tmp_path / "canary"
    folder = tmp_path / "folder"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[filter "x"]\nclean=touch {canary};cat\n')
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / "f").write_text("1")
    subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)

    assert canary.exists()


def test_unchanged_files_are_not_read_again(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (workspace / f"f{number}").write_text(str(number))
    moments = iter((10**18 * 3, 10**18 * 3 + 1))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))  # long after the files changed
    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    monkeypatch.setattr(object_store, "run_git", None)  # whoever calls git now fails
    second = points.create(str(workspace), 1, "after", SavedInterpreters())

    assert (first.commit, first.sha256) == (second.commit, second.sha256)
    assert [first.id, second.id] == [each.id for each in points.all()]


def test_a_change_that_keeps_size_and_time_is_detected(workspace: Path, points: CheckpointStore) -> None:
    (workspace / "f").write_text("aaa")
    settled(workspace)
    points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "f").write_text("bbb")
    settled(workspace)
    points.create(str(workspace), 1, "after", SavedInterpreters())

    assert "-aaa" in points.diff(1)


def test_another_process_continues_with_the_same_checkpoints(workspace: Path, points: CheckpointStore) -> None:
    (workspace / "f").write_text("1\n")
    first = points.create(str(workspace), 1, "before", SAVED)
    again = CheckpointStore(points.folder)
    (workspace / "f").write_text("2\n")
    second = again.create(str(workspace), 1, "after", SavedInterpreters())

    assert ["c1", "c2"] == [each.id for each in again.all()]
    assert "-1\n+2\n" in again.diff(1)
    assert b"x = 42" == again.state(first.id)
    assert b"" == again.state(second.id)
    assert (("python x",), ("python g (generator)",)) == (again.find("c1").kept, again.find("c1").lost)
    assert 0o700 == stat.S_IMODE(points.folder.stat().st_mode)


def test_a_turn_that_changed_nothing_has_an_empty_diff(workspace: Path, points: CheckpointStore) -> None:
    (workspace / "f").write_text("1\n")
    points.create(str(workspace), 1, "after", SavedInterpreters())
    os.utime(workspace / "f", (1, 1))
    points.create(str(workspace), 2, "after", SavedInterpreters())

    assert "" == points.diff(2)
    with pytest.raises(NotFoundError):
        points.diff(1)
    with pytest.raises(NotFoundError):
        points.diff(3)


def test_a_long_diff_is_cut_and_marked(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "LONGEST_DIFF", 1000)
    points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "f").write_text("line\n" * 100_000)
    points.create(str(workspace), 1, "after", SavedInterpreters())
    shown = points.diff(1)

    assert len(shown) < 1100
    assert shown.endswith("(cut after 1000 bytes)\n")


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (ScanBounds(files=5), "more than 5 files"),
        (ScanBounds(bytes=3), "MiB, with"),
        (ScanBounds(seconds=-1), "can be scanned"),
    ],
)
def test_a_folder_with_too_much_content_is_refused_and_earlier_checkpoints_stay(
    workspace: Path, tmp_path: Path, bounds: ScanBounds, why: str
) -> None:
    (workspace / "f").write_text("1")
    first = CheckpointStore(tmp_path / "c").create(str(workspace), 1, "before", SavedInterpreters())
    for number in range(10):
        (workspace / f"more{number}").write_text("2")

    bounded = CheckpointStore(tmp_path / "c", bounds=bounds)
    with pytest.raises(SandboxError, match=why):
        bounded.create(str(workspace), 1, "after", SavedInterpreters())
    assert [first] == list(bounded.all())
    restored = bounded.restore(first.id, str(workspace))
    assert {"f"} == set(seen(workspace))
    assert "" == restored.undo
    assert why in restored.why_not


def test_an_extremely_deep_folder_is_named_at_its_limit(workspace: Path, points: CheckpointStore) -> None:
    here = os.open(workspace, os.O_RDONLY)
    for _ in range(scan.MAX_DEPTH + 20):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    assert "folders deep" in points.create(str(workspace), 1, "after", SavedInterpreters()).left[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_an_unreadable_file_is_named() -> None:
    """As nobody, who may not read what its owner closed."""
    with tempfile.TemporaryDirectory(prefix="kc-", dir="/tmp") as name:
        workspace = Path(name, "workspace")
        workspace.mkdir()
        (workspace / "closed").write_text("x")
        (workspace / "folder").mkdir()
        (workspace / "open").write_text("y")
        for path in (Path(name), workspace, *workspace.iterdir()):
            os.chown(path, 65534, 65534)
        (workspace / "closed").chmod(0)
        (workspace / "folder").chmod(0)
        points = CheckpointStore(Path(name, "c"))
        said = as_nobody(lambda: repr(points.create(str(workspace), 1, "after", SavedInterpreters())))

    assert "closed (Permission denied)" in said
    assert "folder (what is in it: Permission denied)" in said
    assert "size_bytes=1" in said


def as_nobody(act: Callable[[], str]) -> str:
    """What *act* says in a child that is not root."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writes, act().encode())
        except BaseException as error:  # noqa: BLE001 (it is told to the parent)
            os.write(writes, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_file_that_changes_while_it_is_read_is_stored_and_named(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "log").write_bytes(b"x" * 1000)
    true = os.pread

    def growing(handle: int, count: int, at: int) -> bytes:
        said = true(handle, count, at)
        os.truncate(workspace / "log", (workspace / "log").stat().st_size - 10)
        return said[:100]

    monkeypatch.setattr(os, "pread", growing)
    point = points.create(str(workspace), 1, "after", SavedInterpreters())
    monkeypatch.undo()

    assert ("log (saved while it was being changed)",) == point.left
    again = points.create(str(workspace), 2, "after", SavedInterpreters())
    assert () == again.left
    points.restore(again.id, str(workspace))


@pytest.mark.parametrize("step", ["unpack", "exchange"])
def test_a_failed_restore_leaves_everything_unchanged(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (workspace / "f").write_text("1")
    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "f").write_text("2")
    (workspace / "g").write_text("2")

    def failing(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, step, failing)
    with pytest.raises(SandboxError, match="No space left"):
        points.restore(first.id, str(workspace))

    assert {"f", "g"} == set(seen(workspace))
    assert [] == [path.name for path in workspace.parent.iterdir() if path.name.startswith(".kasmon")]


def test_a_restore_that_cannot_log_its_progress_leaves_everything_unchanged(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("1")
    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "f").write_text("2")
    (workspace / "g").write_text("2")
    true, notes = Path.replace, iter(range(100))

    def full(path: Path, target: Path) -> Path:
        if target.name == "swap.json" and next(notes) == 1:
            raise OSError(28, "No space left on device")
        return true(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SandboxError, match="No space left"):
        points.restore(first.id, str(workspace))

    assert {"f": b"2", "g": b"2"} == {path.name: path.read_bytes() for path in workspace.iterdir()}
    assert [] == [path.name for path in workspace.parent.iterdir() if path.name.startswith(".kasmon")]


@pytest.mark.parametrize("moved", range(5))
def test_a_restore_whose_process_died_is_completed_by_the_next_one(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """Two old things go out and two new ones come in: it dies before each of these steps, and after the last."""
    (workspace / "a").write_text("old")
    (workspace / "b").write_text("old")
    first = points.create(str(workspace), 1, "before", SavedInterpreters())
    (workspace / "a").write_text("new")
    (workspace / "c").write_text("new")
    (workspace / "b").unlink()
    true, steps = os.rename, iter(range(100))

    class Death(BaseException):
        pass

    def dying(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if next(steps) == moved:
            raise Death
        true(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", dying)
    with contextlib.suppress(Death):
        points.restore(first.id, str(workspace))
    monkeypatch.undo()
    CheckpointStore(points.folder).finish()

    assert {"a": b"old", "b": b"old"} == {path.name: path.read_bytes() for path in workspace.iterdir()}
    assert [] == [path.name for path in workspace.parent.iterdir() if path.name.startswith(".kasmon")]


def test_a_fork_is_a_folder_of_its_own(workspace: Path, points: CheckpointStore, tmp_path: Path) -> None:
    filled(workspace)
    point = points.create(str(workspace), 1, "after", SavedInterpreters())
    points.fork(point.id, str(tmp_path / "fork"))

    assert seen(workspace) == seen(tmp_path / "fork")
    with pytest.raises(RefusedError, match="not empty"):
        points.fork(point.id, str(tmp_path / "fork"))
    with pytest.raises(NotFoundError):
        points.fork("c9", str(tmp_path / "other"))


def test_damaged_content_is_not_restored(workspace: Path, points: CheckpointStore, tmp_path: Path) -> None:
    (workspace / "f").write_text("1")
    point = points.create(str(workspace), 1, "after", SAVED)
    (points.folder / "state" / point.state).write_bytes(b"broken")
    with pytest.raises(SandboxError, match="damaged"):
        points.state(point.id)

    for kept in (points.folder / "git" / "objects").rglob("*"):
        if kept.is_file():
            kept.chmod(0o600)
            kept.write_bytes(b"broken")
    with pytest.raises((SandboxError, GitError)):
        CheckpointStore(points.folder).restore(point.id, str(workspace))
    assert {"f"} == set(seen(workspace))


def test_content_that_does_not_match_its_digest_is_not_restored(workspace: Path, points: CheckpointStore) -> None:
    """git itself gives out whatever it finds under a name."""
    (workspace / "f").write_text("mine")
    (workspace / "g").write_text("evil")
    point = points.create(str(workspace), 1, "after", SavedInterpreters())
    loose = points.folder / "git" / "objects"
    (mine,), (evil,) = (list(loose.glob(f"{name[:2]}/{name[2:]}")) for name in blobs_of(points, point.commit))
    mine.chmod(0o600)
    mine.write_bytes(evil.read_bytes())

    with pytest.raises(SandboxError, match="not what it was"):
        points.restore(point.id, str(workspace))
    assert "mine" == (workspace / "f").read_text()


def blobs_of(points: CheckpointStore, commit: str) -> list[str]:
    """The names of the contents in *commit*, in the order of their paths."""
    return [line.split()[2] for line in run_git(points, "ls-tree", "-r", commit).decode().splitlines()]


def test_a_file_that_changed_within_a_tick_of_the_clock_is_read_again() -> None:
    """Its times may be the same after another change."""
    at = 10**18
    seen = {
        "old": ManifestEntry("f", 0o644, 1, 0, at - 2 * RACY_NS, 5),
        "new": ManifestEntry("f", 0o644, 1, 0, at - 1000, 6),
    }
    before = Manifest(at, {name: entry._replace(blob="b") for name, entry in seen.items()})

    known, fresh = find_unread(seen, before)
    assert ["new"] == fresh
    assert "b" == known["old"].blob
    assert ["new", "old"] == sorted(find_unread(seen, None)[1])


def test_the_oldest_are_dropped_and_their_space_is_freed(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_AFTER", 3)
    points = CheckpointStore(tmp_path / "c", limits=RetentionLimits(newest=2))
    for turn in range(6):
        (workspace / "f").write_bytes(os.urandom(100_000))
        points.create(str(workspace), turn, "after", SavedInterpreters(content=b"%d" % turn))
    ids = [each.id for each in points.all()]

    assert ["c1", "c5", "c6"] == ids
    assert 500_000 > object_store.ObjectStore(tmp_path / "c" / "git").size
    for name in ids:
        points.fork(name, str(tmp_path / name))
        assert points.state(name)
    assert 3 == len(list((tmp_path / "c" / "state").iterdir()))


def test_on_a_nearly_full_disk_the_older_half_is_dropped(workspace: Path, tmp_path: Path) -> None:
    points = CheckpointStore(tmp_path / "c", limits=RetentionLimits(bytes=450_000))
    for turn in range(5):
        (workspace / "f").write_bytes(os.urandom(100_000))
        points.create(str(workspace), turn, "after", SavedInterpreters())

    assert ["c1", "c4", "c5"] == [each.id for each in points.all()]
    assert 450_000 > object_store.ObjectStore(tmp_path / "c" / "git").size
    points.restore("c4", str(workspace))
    points.restore("c1", str(workspace))


def test_content_that_a_dropped_checkpoint_shared_stays(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that only changed times has its contents from the one before it."""
    monkeypatch.setattr(module, "TIDY_AFTER", 1)
    points = CheckpointStore(tmp_path / "c", limits=RetentionLimits(newest=1))
    (workspace / "f").write_text("first")
    points.create(str(workspace), 0, "after", SavedInterpreters())
    (workspace / "f").write_text("second")
    for turn in range(1, 4):
        os.utime(workspace / "f", (turn, turn))
        points.create(str(workspace), turn, "after", SavedInterpreters())
    points.fork(points.all()[-1].id, str(tmp_path / "fork"))

    assert "second" == (tmp_path / "fork" / "f").read_text()
    assert "-first\n" in points.diff(3).replace("\\ No newline at end of file\n", "")
    assert ["c1", "c4"] == [each.id for each in points.all()]


def test_at_the_end_of_a_session_its_memory_is_gone_and_its_files_stay(
    workspace: Path, points: CheckpointStore
) -> None:
    (workspace / "f").write_text("1")
    point = points.create(str(workspace), 1, "after", SAVED)
    points.purge_memory()

    assert b"" == points.state(point.id)
    assert [] == list((points.folder / "state").iterdir())
    assert ("python x",) == points.find(point.id).kept
    points.restore(point.id, str(workspace))
    points.purge()
    points.purge()
    assert not points.folder.exists()


def test_without_git_no_checkpoint_is_stored_and_that_is_reported(
    workspace: Path, points: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GitError, match="not installed"):
        points.create(str(workspace), 1, "after", SavedInterpreters())
    assert () == points.all()


def test_a_workspace_that_is_a_link_is_not_read(tmp_path: Path, points: CheckpointStore) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(SandboxError, match="cannot be read"):
        points.create(str(tmp_path / "link"), 1, "after", SavedInterpreters())


def run_git(points: CheckpointStore, *words: str) -> bytes:
    done = subprocess.run(
        ["git", f"--git-dir={points.folder / 'git'}", *words], capture_output=True, check=True, cwd="/"
    )
    return done.stdout


def test_a_file_that_may_be_memory_mapped_is_read_for_any_times() -> None:
    quiet = ManifestEntry(FILE, 0o644, 1, 10, 10, 7, "blob")
    before = Manifest(10**12, {"a": quiet, "b": quiet._replace(inode=8)})
    seen = {path: entry._replace(blob="") for path, entry in before.files.items()}

    assert ([], ["b"]) == (find_unread(seen, before)[1], find_unread(seen, before, {8})[1])
    assert ["b"] == find_unread(seen, Manifest(10**12, mark_unsettled(before.files, {8})))[1]
