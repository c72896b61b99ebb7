"""The line between a machine and what is outside: what is told of a folder inside, and what the outside makes of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import SandboxError
from kasmon.model.sandbox.policy import MIB, SIZES
from kasmon.sandbox.guest.frames import FrameReader, pack
from kasmon.sandbox.guest.mux import (
    CONTENT,
    DATA,
    MESSAGE,
    RECORD_BYTES,
    REQUEST,
    pack_message,
    pack_record,
    parse_record,
)
from kasmon.sandbox.microvm import image
from kasmon.sandbox.microvm.boot import CpioArchive
from kasmon.sandbox.microvm.link.folder_changes import FolderChanges
from kasmon.sandbox.microvm.link.folder_mirror import FolderMirror
from kasmon.sandbox.microvm.qemu import CPU, MACHINE, PROGRAMS_BYTES, OpenFiles, build_command_line


class Ends:
    """A folder inside, its tree; a folder outside, its mirror."""

    def __init__(self, root: Path, most_bytes: int = MIB) -> None:
        self.inside, self.outside = root / "inside", root / "outside"
        for folder in (self.inside, self.outside):
            folder.mkdir()
        handles = (os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in (self.outside, self.inside))
        self.handle, self.inner = handles
        self.tree = FolderChanges("workspace", str(self.inside))
        self.begin_outside(most_bytes)
        self.taking = FolderMirror(self.tree, self.inner, 1 << 40, owner=os.geteuid(), is_outside=False)

    def begin_outside(self, most_bytes: int = MIB) -> None:
        """Let another one be outside, which knows nothing."""
        self.outer = FolderChanges("workspace", f"/proc/self/fd/{self.handle}", REQUEST, do="mirror")
        self.mirror = FolderMirror(self.outer, self.handle, most_bytes)

    def close(self) -> None:
        os.close(self.handle)
        os.close(self.inner)

    def learn(self) -> None:
        """Let the outside know what the inside takes it to have."""
        self.outer.record_manifest(json.loads(json.dumps(list(self.tree.manifest()))))
        self.outer.is_level = True

    def refresh(self) -> list[str]:
        """Let both be level, as before a run; what was told to people."""
        self.tell()
        self.put()
        return [*self.mirror.pop_conflicts(), *self.taking.pop_conflicts()]

    def texts(self, folder: Path) -> dict[str, str]:
        """Every file in *folder*."""
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    def tell(self) -> list[str]:
        """Let the mirror do all that the tree tells; what was told, by kind and name."""
        sent = bytearray()
        self.tree.send_changes(sent.extend)
        heard = []
        for kind, _, content in map(parse_record, FrameReader(RECORD_BYTES).feed(bytes(sent))):
            if kind == CONTENT:
                self.mirror.append(content)
                continue
            said = json.loads(content)
            heard.append(f"{said['tell']} {said['path']}")
            if said["tell"] == "whole":
                self.mirror.complete()
            else:
                self.mirror.apply_record(said)
        return heard

    def put(self) -> list[str]:
        """Let the inside have what changed outside; what was told, by kind and name."""
        sent = bytearray()
        self.left = self.outer.send_changes(sent.extend)
        heard = []
        for kind, _, content in map(parse_record, FrameReader(RECORD_BYTES).feed(bytes(sent))):
            if kind == CONTENT:
                self.taking.append(content)
                continue
            said = json.loads(content)
            assert "mirror" == said["do"]
            heard.append(f"{said['tell']} {said['path']}")
            if said["tell"] == "whole":
                self.taking.complete()
            else:
                self.taking.apply_record(said)
        return heard


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    ends = Ends(tmp_path)
    yield ends
    ends.close()


def said(what: str, path: str, **more: object) -> dict[str, object]:
    return {"tell": what, "tree": "workspace", "path": path, "mode": 0o644, "at_ns": 0, **more}


def test_added_changed_and_removed_files_are_sent_once_and_applied_outside(ends: Ends) -> None:
    (ends.inside / "a").mkdir()
    (ends.inside / "a" / "f").write_text("one")
    (ends.inside / "link").symlink_to("a/f")
    ends.tell()
    assert "one" == (ends.outside / "a" / "f").read_text()
    assert "a/f" == os.readlink(ends.outside / "link")  # noqa: PTH115 - a link is not to be followed here
    assert [] == ends.tell()

    (ends.inside / "a" / "f").write_text("other")
    (ends.inside / "link").unlink()

    assert ["gone link", "file a/f", "whole a/f"] == ends.tell()
    assert "other" == (ends.outside / "a" / "f").read_text()
    assert ["a"] == [path.name for path in ends.outside.iterdir()]


def test_modes_times_and_names_of_any_bytes_are_kept(ends: Ends) -> None:
    name = os.fsencode(ends.inside) + b"/\xff\n "
    Path(os.fsdecode(name)).write_text("x")
    os.chmod(name, 0o750)  # noqa: PTH101 - a name of bytes
    os.utime(name, ns=(5, 7))

    ends.tell()

    facts = Path(os.fsdecode(os.fsencode(ends.outside) + b"/\xff\n ")).stat()
    assert (0o750, 7) == (facts.st_mode & 0o777, facts.st_mtime_ns)


def test_no_setuid_or_setgid_leaves_the_guest_for_any_message(ends: Ends) -> None:
    ends.mirror.apply_record(said("folder", "folder", mode=0o2775))
    ends.mirror.apply_record(said("file", "folder/program", mode=0o6755, at_ns=0, size=0))
    ends.mirror.complete()

    assert [0o775, 0o755] == [(ends.outside / path).stat().st_mode & 0o7777 for path in ("folder", "folder/program")]


def test_a_file_that_becomes_a_folder_and_back_does_so_outside_too(ends: Ends) -> None:
    (ends.inside / "x").write_text("file")
    ends.tell()
    (ends.inside / "x").unlink()
    (ends.inside / "x").mkdir()
    (ends.inside / "x" / "y").write_text("in it")
    ends.tell()
    assert "in it" == (ends.outside / "x" / "y").read_text()
    (ends.inside / "x" / "y").unlink()
    (ends.inside / "x").rmdir()
    (ends.inside / "x").symlink_to("/etc")

    ends.tell()

    assert (ends.outside / "x").is_symlink()


def test_a_machine_starts_with_the_files_outside_and_sends_none_of_them_back(ends: Ends) -> None:
    (ends.outside / "a" / "b").mkdir(parents=True)
    (ends.outside / "a" / "b" / "f").write_bytes(b"x" * 200_000)
    (ends.outside / "link").symlink_to("a")

    ends.put()

    assert 200_000 == (ends.inside / "a" / "b" / "f").stat().st_size
    assert "a" == os.readlink(ends.inside / "link")  # noqa: PTH115 - a link is not to be followed here
    assert [] == ends.tell()


def test_a_change_outside_is_applied_once_and_not_sent_back(ends: Ends) -> None:
    (ends.inside / "old").write_text("1")
    (ends.inside / "gone").write_text("1")
    ends.refresh()
    (ends.outside / "old").write_text("two")
    (ends.outside / "gone").unlink()
    (ends.outside / "new").mkdir()
    (ends.outside / "new" / "f").write_text("3")
    (ends.outside / "link").symlink_to("new/f")

    assert [] == ends.refresh()

    assert {"old": "two", "new/f": "3", "link": "3"} == ends.texts(ends.inside)
    assert [] == ends.tell() == ends.put()
    (ends.inside / "new" / "f").write_text("more")
    assert ["file new/f", "whole new/f"] == ends.tell()
    assert [] == ends.put()


def test_a_change_on_both_sides_is_lost_on_neither_and_reported(ends: Ends) -> None:
    (ends.inside / "f").write_text("1")
    ends.refresh()
    (ends.inside / "f").write_text("inside")
    (ends.outside / "f").write_text("outside!")

    (told,) = ends.refresh()

    assert (
        "'f' was changed in the sandbox and on this machine: this machine's version keeps the name, the sandbox's"
        " version is 'f.inside'." == told
    )
    assert {"f": "outside!", "f.inside": "inside"} == ends.texts(ends.outside) == ends.texts(ends.inside)
    (ends.inside / "f").write_text("again")
    (ends.outside / "f").write_text("and again")
    ends.refresh()
    assert "again" == ends.texts(ends.outside)["f.inside2"]
    assert [] == ends.refresh()


def test_a_new_file_on_both_sides_under_one_name_is_lost_on_neither(ends: Ends) -> None:
    ends.refresh()
    (ends.inside / "f").write_text("inside")
    (ends.inside / "d").mkdir()
    (ends.inside / "d" / "g").write_text("g")
    (ends.outside / "f").write_text("outside!")
    (ends.outside / "d").write_text("a file")

    ends.refresh()

    everything = {"f": "outside!", "f.inside": "inside", "d/g": "g", "d.outside": "a file"}
    assert everything == ends.texts(ends.outside) == ends.texts(ends.inside)


def test_a_file_removed_on_one_side_and_changed_on_the_other_is_restored(ends: Ends) -> None:
    for name in ("a", "b"):
        (ends.inside / name).write_text("1")
    ends.refresh()
    (ends.inside / "a").unlink()
    (ends.outside / "a").write_text("outside")
    (ends.inside / "b").write_text("inside")
    (ends.outside / "b").unlink()

    (told,) = ends.refresh()

    assert "'a' was changed on one side and removed on the other: it was restored." == told
    assert {"a": "outside", "b": "inside"} == ends.texts(ends.outside) == ends.texts(ends.inside)


def test_a_folder_removed_in_the_guest_stays_with_files_added_outside(ends: Ends) -> None:
    (ends.inside / "d").mkdir()
    (ends.inside / "d" / "f").write_text("1")
    ends.refresh()
    (ends.inside / "d" / "f").unlink()
    (ends.inside / "d").rmdir()
    (ends.outside / "d" / "mine").write_text("2")

    ends.refresh()

    assert {"d/mine": "2"} == ends.texts(ends.outside) == ends.texts(ends.inside)


def test_a_change_in_the_guest_during_an_update_is_kept_beside(ends: Ends) -> None:
    (ends.inside / "f").write_text("1")
    ends.refresh()
    (ends.outside / "f").write_text("outside")
    ends.tell()
    (ends.inside / "f").write_text("between")

    ends.put()

    assert {"f": "outside", "f.inside": "between"} == ends.texts(ends.inside)
    assert [
        "'f' was changed in the sandbox and on this machine: this machine's version keeps the name, the sandbox's"
        " version is 'f.inside'."
    ] == (ends.taking.pop_conflicts())


def test_a_file_being_written_is_sent_by_neither_side(ends: Ends) -> None:
    ends.taking.apply_record(said("file", "f"))
    ends.taking.append(b"half")

    assert [] == ends.tell()
    ends.taking.complete()
    assert [] == ends.tell()


def test_a_later_outside_end_sends_the_changes_made_without_it(ends: Ends) -> None:
    for name in ("same", "changed", "gone", "both"):
        (ends.inside / name).write_text("1")
    (ends.inside / "d").mkdir()
    (ends.inside / "link").symlink_to("same")
    ends.refresh()
    (ends.outside / "changed").write_text("other")
    (ends.outside / "gone").unlink()
    (ends.outside / "new").write_text("new")
    (ends.outside / "both").write_text("outside!")
    ends.begin_outside()
    ends.learn()
    (ends.inside / "both").write_text("inside")

    ends.tell()

    told = ["both", "both.inside", "changed", "new"]
    assert ["gone gone", *(f"{what} {name}" for name in told for what in ("file", "whole"))] == ends.put()
    everything = {
        "same": "1",
        "link": "1",
        "changed": "other",
        "new": "new",
        "both": "outside!",
        "both.inside": "inside",
    }
    assert everything == ends.texts(ends.inside) == ends.texts(ends.outside)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_outside_is_named(ends: Ends) -> None:
    (ends.outside / "closed").write_text("x")
    (ends.outside / "closed").chmod(0)
    ends.put()

    assert ["'closed': Permission denied"] == ends.left


@pytest.mark.parametrize("path", ["../f", "/f", "a/../../f", "", ".", "a//f", "a\0b"])
def test_no_name_leaves_the_folder(ends: Ends, path: str) -> None:
    with pytest.raises(OSError, match="is not a path in the folder"):
        ends.mirror.apply_record(said("file", path))


def test_no_link_is_followed_in_the_path_of_a_file_or_at_its_end(ends: Ends, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "kept").write_text("mine")
    ends.mirror.apply_record(said("link", "evil", target=str(outer)))
    ends.mirror.apply_record(said("link", "kept", target=str(outer / "kept")))

    with pytest.raises(OSError, match=r"evil|Not a directory|Too many levels"):
        ends.mirror.apply_record(said("file", "evil/new"))
    ends.mirror.apply_record(said("file", "kept"))
    ends.mirror.append(b"theirs")
    ends.mirror.complete()
    ends.mirror.apply_record(said("gone", "evil"))

    assert "mine" == (outer / "kept").read_text()
    assert ["kept"] == [path.name for path in outer.iterdir()]
    assert "theirs" == (ends.outside / "kept").read_text()


def test_an_incomplete_file_is_not_written_and_the_earlier_one_stays(ends: Ends) -> None:
    (ends.outside / "f").write_text("before")
    ends.mirror.apply_record(said("file", "f"))
    ends.mirror.append(b"half")

    ends.mirror.apply_record(said("folder", "d"))

    assert "before" == (ends.outside / "f").read_text()
    assert {"d", "f"} == {path.name for path in ends.outside.iterdir()}


def test_more_than_the_limit_of_the_folder_is_refused(tmp_path: Path) -> None:
    ends = Ends(tmp_path, most_bytes=10)
    ends.mirror.apply_record(said("file", "f"))

    with pytest.raises(OSError, match="more data was sent than the folder may contain"):
        ends.mirror.append(b"x" * 11)

    ends.close()


def test_records_arrive_whole_at_any_cut() -> None:
    sent = pack_record(DATA, 7, b"abc") + pack_message(MESSAGE, {"tell": "ready"}) + pack_record(CONTENT)
    records = FrameReader(RECORD_BYTES)

    heard = [parse_record(frame) for at in range(len(sent)) for frame in records.feed(sent[at : at + 1])]

    assert [(DATA, 7, b"abc"), (MESSAGE, 0, b'{"tell": "ready"}'), (CONTENT, 0, b"")] == heard


@pytest.mark.parametrize("data", [pack_record(0), pack_record(10), pack(b"\1"), b"\xff\xff\xff\xff"])
def test_an_invalid_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no record|too large"):
        list(map(parse_record, FrameReader(RECORD_BYTES).feed(data)))


def test_the_qemu_command_has_a_pinned_machine_and_no_path() -> None:
    handles = OpenFiles(kernel=10, initrd=11, root=12, base=13, disk=14, control=15, console=16, memory=17, programs=18)
    said = build_command_line("/usr/bin/qemu", handles, SIZES["default"], accelerator="tcg")

    assert f"{MACHINE},vmport=off,usb=off" in said
    assert CPU in said
    assert "-S" in said
    assert "fd:17" in said
    assert set(range(10, 19)) == set(handles.every)
    paths = [word for word in said[1:] if "/" in word and "/dev/fdset/" not in word and "/proc/self/fd/" not in word]
    assert ["rdinit=/init"] == [part for word in paths for part in word.split() if "/" in part]


def test_a_machine_without_programs_has_the_same_disks_so_that_it_can_be_copied() -> None:
    handles = OpenFiles(kernel=10, initrd=11, root=12, base=13, disk=14, control=15, console=16)
    said, other = (
        build_command_line("/usr/bin/qemu", each, SIZES["default"], accelerator="tcg")
        for each in (handles, msgspec.structs.replace(handles, programs=18))
    )

    assert [word for word in said if word.startswith("virtio-")] == [w for w in other if w.startswith("virtio-")]
    assert any('"null-co"' in word and str(PROGRAMS_BYTES) in word for word in said)
    assert not any("null-co" in word for word in other)


def test_an_image_is_of_this_version_with_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(b"kernel")
    built = image.VmImage(
        id="a", made_at=1.0, kernel="6", versions={}, hashes={"vmlinux": "1f"}, modules=(), recipe=image.recipe()
    )
    (tmp_path / "image.json").write_bytes(msgspec.json.encode(built))
    assert built == image.load_image(tmp_path)

    (tmp_path / "vmlinux").rename(tmp_path / "elsewhere")
    assert None is image.load_image(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "vmlinux")
    (tmp_path / "image.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(built, recipe="another")))
    assert None is image.load_image(tmp_path)
    (tmp_path / "image.json").write_bytes(b"{")
    assert None is image.load_image(tmp_path)


def test_an_image_that_cannot_be_built_gives_the_reason_and_keeps_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "image" / "vmlinux"
    before.parent.mkdir()
    before.write_bytes(b"kernel")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SandboxError, match=r"apt-get \(package apt\)|for x86_64 only"):
        image.build(tmp_path / "image")

    assert b"kernel" == before.read_bytes()


def test_the_initrd_is_an_archive_that_linux_reads() -> None:
    archive = CpioArchive()
    archive.add_folder("bin")
    archive.add_file("bin/x", b"abc", 0o755)
    content = archive.whole()

    assert content.startswith(b"070701")
    assert 0 == len(content) % 4
    assert b"bin/x\0" in content
    assert b"TRAILER!!!\0" in content
