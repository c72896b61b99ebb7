"""The line between a machine and what is outside: what is told of a folder inside, and what the outside makes of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import SandboxError
from kasmon.model.sandbox import MIB, SIZES
from kasmon.sandbox.microvm import image
from kasmon.sandbox.microvm.cpio import Archive
from kasmon.sandbox.microvm.hardware import CPU, MACHINE, Handles, words
from kasmon.sandbox.microvm.line.mirror import Mirror
from kasmon.sandbox.microvm.line.records import ASK, DATA, PIECE, SAID, Records, WrongRecordError, packed, told
from kasmon.sandbox.microvm.line.trees import Tree


class Ends:
    """A folder inside, its tree; a folder outside, its mirror."""

    def __init__(self, root: Path, most_bytes: int = MIB) -> None:
        self.inside, self.outside = root / "inside", root / "outside"
        for folder in (self.inside, self.outside):
            folder.mkdir()
        self.handle = os.open(self.outside, os.O_RDONLY | os.O_DIRECTORY)
        self.tree = Tree("workspace", str(self.inside), os.geteuid())
        self.mirror = Mirror("workspace", self.handle, most_bytes)

    def tell(self) -> list[str]:
        """Let the mirror do all that the tree tells; what was told, by kind and name."""
        sent = bytearray()
        self.tree.tell(sent.extend)
        heard = []
        for kind, _, content in Records().feed(bytes(sent)):
            if kind == PIECE:
                self.mirror.piece(content)
                continue
            said = json.loads(content)
            heard.append(f"{said['tell']} {said['path']}")
            if said["tell"] == "whole":
                self.mirror.whole()
            else:
                self.mirror.told(said)
        return heard

    def fill(self) -> None:
        """Let the tree have all that the outside holds."""
        sent = bytearray()
        self.mirror.fill(sent.extend)
        for kind, _, content in Records().feed(bytes(sent)):
            if kind == PIECE:
                self.tree.piece(content)
            else:
                self.tree.put(json.loads(content))
        self.tree.settle()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    ends = Ends(tmp_path)
    yield ends
    os.close(ends.handle)


def said(what: str, path: str, **more: object) -> dict[str, object]:
    return {"tell": what, "tree": "workspace", "path": path, "mode": 0o644, "at_ns": 0, **more}


def test_what_came_changed_and_went_is_told_once_and_is_so_outside(ends: Ends) -> None:
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


def test_a_file_that_becomes_a_folder_and_back_is_that_outside_too(ends: Ends) -> None:
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


def test_a_machine_begins_with_what_lies_outside_and_tells_none_of_it_again(ends: Ends) -> None:
    (ends.outside / "a" / "b").mkdir(parents=True)
    (ends.outside / "a" / "b" / "f").write_bytes(b"x" * 200_000)
    (ends.outside / "link").symlink_to("a")

    ends.fill()

    assert 200_000 == (ends.inside / "a" / "b" / "f").stat().st_size
    assert "a" == os.readlink(ends.inside / "link")  # noqa: PTH115 - a link is not to be followed here
    assert [] == ends.tell()


@pytest.mark.parametrize("path", ["../f", "/f", "a/../../f", "", ".", "a//f", "a\0b"])
def test_no_name_leads_out_of_the_folder(ends: Ends, path: str) -> None:
    with pytest.raises(OSError, match="leads elsewhere"):
        ends.mirror.told(said("file", path))


def test_no_link_is_followed_on_the_way_to_a_file_or_at_its_end(ends: Ends, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "kept").write_text("mine")
    ends.mirror.told(said("link", "evil", target=str(outer)))
    ends.mirror.told(said("link", "kept", target=str(outer / "kept")))

    with pytest.raises(OSError, match=r"evil|Not a directory|Too many levels"):
        ends.mirror.told(said("file", "evil/new"))
    ends.mirror.told(said("file", "kept"))
    ends.mirror.piece(b"theirs")
    ends.mirror.whole()
    ends.mirror.told(said("gone", "evil"))

    assert "mine" == (outer / "kept").read_text()
    assert ["kept"] == [path.name for path in outer.iterdir()]
    assert "theirs" == (ends.outside / "kept").read_text()


def test_a_file_that_is_not_told_to_its_end_is_not_there_and_the_one_before_is(ends: Ends) -> None:
    (ends.outside / "f").write_text("before")
    ends.mirror.told(said("file", "f"))
    ends.mirror.piece(b"half")

    ends.mirror.told(said("folder", "d"))

    assert "before" == (ends.outside / "f").read_text()
    assert {"d", "f"} == {path.name for path in ends.outside.iterdir()}


def test_more_than_the_folder_may_hold_is_refused(tmp_path: Path) -> None:
    ends = Ends(tmp_path, most_bytes=10)
    ends.mirror.told(said("file", "f"))

    with pytest.raises(OSError, match="more was told"):
        ends.mirror.piece(b"x" * 11)

    os.close(ends.handle)


def test_records_come_whole_however_they_are_cut() -> None:
    sent = packed(DATA, 7, b"abc") + told(SAID, {"tell": "ready"}) + packed(PIECE, 0)
    records = Records()

    heard = [record for at in range(len(sent)) for record in records.feed(sent[at : at + 1])]

    assert [(DATA, 7, b"abc"), (SAID, 0, b'{"tell": "ready"}'), (PIECE, 0, b"")] == heard


@pytest.mark.parametrize("data", [b"\0" * 9, b"\x09" + b"\0" * 8, bytes([ASK]) + b"\0\0\0\0\xff\xff\xff\xff"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(WrongRecordError):
        Records().feed(data)


def test_qemu_is_told_of_a_pinned_machine_and_of_no_path() -> None:
    handles = Handles(kernel=10, initrd=11, root=12, base=13, disk=14, control=15, console=16, memory=17)
    said = words("/usr/bin/qemu", handles, SIZES["default"], accelerator="tcg")

    assert f"{MACHINE},vmport=off,usb=off" in said
    assert CPU in said
    assert "-S" in said
    assert "fd:17" in said
    assert set(range(10, 18)) == set(handles.every)
    paths = [word for word in said[1:] if "/" in word and "/dev/fdset/" not in word and "/proc/self/fd/" not in word]
    assert ["rdinit=/init"] == [part for word in paths for part in word.split() if "/" in part]


def test_an_image_is_one_of_this_version_with_all_its_files_as_they_were_built(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(b"kernel")
    built = image.Image(
        id="a", made_at=1.0, kernel="6", versions={}, hashes={"vmlinux": image.hashed(tmp_path / "vmlinux")}, modules=()
    )
    (tmp_path / "image.json").write_bytes(msgspec.json.encode(built))
    assert built == image.found(tmp_path)
    assert [] == image.damaged(tmp_path, built)

    (tmp_path / "vmlinux").write_bytes(b"another")
    assert ["vmlinux"] == image.damaged(tmp_path, built)
    (tmp_path / "image.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(built, format=0)))
    assert None is image.found(tmp_path)
    (tmp_path / "image.json").write_bytes(b"{")
    assert None is image.found(tmp_path)


def test_an_image_that_cannot_be_built_says_why_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "image" / "vmlinux"
    before.parent.mkdir()
    before.write_bytes(b"kernel")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SandboxError, match=r"apt-get \(package apt\)|for x86_64 alone"):
        image.build(tmp_path / "image")

    assert b"kernel" == before.read_bytes()


def test_the_first_files_are_an_archive_as_linux_reads_it() -> None:
    archive = Archive()
    archive.folder("bin")
    archive.file("bin/x", b"abc", 0o755)
    content = archive.whole()

    assert content.startswith(b"070701")
    assert 0 == len(content) % 4
    assert b"bin/x\0" in content
    assert b"TRAILER!!!\0" in content
