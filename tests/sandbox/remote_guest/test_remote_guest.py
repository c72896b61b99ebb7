"""Where a sandbox sees no folder and no socket of this machine: a relay listens for it, its files come as a gift."""

import base64
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.errors import SandboxError
from kasmon.sandbox.guest import files
from kasmon.sandbox.remote_guest import folder_sync, relay
from kasmon.sandbox.remote_guest.folder_sync import BundledFile, FileBundle, FolderSync
from tests.support.wait import until


def test_a_relay_connects_any_client_and_leaves_nothing_when_it_ends(root: Path) -> None:
    runtime = relay.start("tests.support.sandbox.echo_relay", root / "s", {})
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(runtime.socket)
        caller.sendall(b"hello")
        assert b"hello" == caller.recv(100)
        assert 0o600 == Path(runtime.socket).stat().st_mode & 0o777

        relay.end_relay(runtime)
        relay.end_relay(runtime)

        assert b"" == caller.recv(100)
    assert not relay.is_there(runtime)
    assert not Path(runtime.socket).exists()


def test_a_relay_whose_socket_was_removed_ends(root: Path) -> None:
    """Whoever started it died before that was noted: nobody knows of it."""
    runtime = relay.start("tests.support.sandbox.echo_relay", root / "s", {"look_s": 0.05})
    Path(runtime.socket).unlink()

    until(lambda: not relay.is_there(runtime))


def test_a_relay_that_cannot_start_is_reported(root: Path) -> None:
    with pytest.raises(SandboxError, match="did not start"):
        relay.start("tests.sandbox.no_such_way", root / "s", {})


def gave(folder: Path, **fresh: Any) -> tuple[str, ...]:
    return folder_sync.apply_bundle(FileBundle(whole=False, fresh=fresh), str(folder))


def text(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


def test_a_folder_is_bundled_and_unpacked_and_only_changes_are_sent_again(root: Path) -> None:
    here, there, note = root / "here", root / "there", root / "note"
    (here / "deep").mkdir(parents=True)
    (here / "deep" / "file").write_bytes(bytes(range(256)))
    (here / "link").symlink_to("deep/file")
    (here / "run").write_text("x")
    (here / "run").chmod(0o750)
    there.mkdir()
    (root / "gift").write_bytes(FolderSync(str(here), root / "outside").whole())

    files.apply(str(there), str(note), str(root / "gift"))

    assert bytes(range(256)) == (there / "deep/file").read_bytes() == (there / "link").read_bytes()
    assert 0o750 == (there / "run").stat().st_mode & 0o777
    changed, now = files.given(str(there), msgspec.json.decode(note.read_bytes()))
    assert {"whole": False, "gone": [], "fresh": {}, "left": {}} == changed
    (there / "deep/file").unlink()
    (there / "run").write_text("changed")
    changed, _ = files.given(str(there), now)
    assert () == folder_sync.apply_bundle(folder_sync.decode_bundle(msgspec.json.encode(changed)), str(here))
    assert {"deep", "link", "run"} == {str(path.relative_to(here)) for path in here.rglob("*")}
    assert "changed" == (here / "run").read_text()


def test_without_an_earlier_state_missing_files_are_removed(root: Path) -> None:
    here, there = root / "here", root / "there"
    for folder in (here, there):
        (folder / "deep").mkdir(parents=True)
    (here / "deep/old").write_text("old")
    changed, _ = files.given(str(there), None)

    folder_sync.apply_bundle(folder_sync.decode_bundle(msgspec.json.encode(changed)), str(here))

    assert ["deep"] == [str(path.relative_to(here)) for path in here.rglob("*")]


@pytest.mark.parametrize("path", ["../out", "/tmp/ks-out", "a/../../out", "", ".", "a//b", "a\0b"])
def test_no_path_leaves_the_folder(root: Path, path: str) -> None:
    (root / "here").mkdir()

    assert 1 == len(gave(root / "here", **{path: BundledFile("f", 0o644, text("x"))}))
    folder_sync.apply_bundle(FileBundle(whole=False, gone=(path,)), str(root / "here"))

    assert ["here"] == [each.name for each in root.iterdir()]


def test_nothing_is_written_or_removed_through_a_link(root: Path) -> None:
    """A sandbox may give a link first, and then a file behind it."""
    here, secret = root / "here", root / "secret"
    here.mkdir()
    secret.mkdir()
    (secret / "kept").write_text("kept")
    gave(here, way=BundledFile("l", 0o777, str(secret)))

    missed = gave(
        here, **{"way/kept": BundledFile("f", 0o644, text("gone")), "way/new": BundledFile("f", 0o644, text("x"))}
    )
    folder_sync.apply_bundle(FileBundle(whole=False, gone=("way/kept",)), str(here))

    assert 2 == len(missed)
    assert ["kept"] == [each.read_text() for each in secret.iterdir()]
    gave(here, way=BundledFile("f", 0o4755, text("mine")))
    assert ("mine", 0o755) == ((here / "way").read_text(), (here / "way").stat().st_mode & 0o7777)
    assert "kept" == (secret / "kept").read_text()


def test_an_invalid_bundle_is_refused(root: Path) -> None:
    for said in ("", "[]", '{"fresh": {"a": {"kind": "p", "mode": 1}}}'):
        with pytest.raises(SandboxError, match="the content of the sandbox's workspace is unknown"):
            folder_sync.decode_bundle(said)
    assert ("'a' was not fetched" in gave(root, a=BundledFile("f", 0o644, "no base64!"))[0]) is True


def test_an_oversized_file_is_named_and_sent_once_it_is_smaller(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = root / "here", root / "there"
    here.mkdir()
    there.mkdir()
    (there / "big").write_bytes(bytes(11))
    (there / "small").write_bytes(bytes(9))
    with monkeypatch.context() as patch:
        patch.setattr(files, "MOST_BYTES", 10)
        changed, now = files.given(str(there), None)
    assert (
        "'big' was not fetched"
        in folder_sync.apply_bundle(folder_sync.decode_bundle(msgspec.json.encode(changed)), str(here))[0]
    )
    changed, _ = files.given(str(there), now)
    assert () == folder_sync.apply_bundle(folder_sync.decode_bundle(msgspec.json.encode(changed)), str(here))

    assert {"big", "small"} == set(os.listdir(here))  # noqa: PTH208


class Sides:
    """A folder here and one there, level at first; `goes` and `comes` are what a tier does with them."""

    def __init__(self, root: Path) -> None:
        self.root, self.here, self.there = root, root / "here", root / "there"
        for folder in (self.here, self.there):
            folder.mkdir()
        (self.here / "deep").mkdir()
        (self.here / "deep/file").write_text("old")
        self.outside = FolderSync(str(self.here), root / "outside")
        self.put(self.outside.whole())

    def put(self, content: bytes) -> None:
        (self.root / "gift").write_bytes(content)
        files.apply(str(self.there), str(self.root / "note"), str(self.root / "gift"))

    def goes(self) -> bool:
        """Whether anything did."""
        if (changes := self.outside.changes()) is None:
            return False
        self.put(changes[0])
        self.outside.record_files(changes[1])
        return True

    def comes(self) -> tuple[str, ...]:
        changed, now = files.given(str(self.there), msgspec.json.decode((self.root / "note").read_bytes()))
        (self.root / "note").write_bytes(msgspec.json.encode(now))
        return self.outside.takes(msgspec.json.encode(changed))

    def both(self) -> dict[str, str]:
        """The files of both sides, which are the same."""
        sides = [
            {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}
            for top in (self.here, self.there)
        ]
        assert sides[0] == sides[1]
        return sides[0]


def test_a_change_here_is_sent_once_and_a_received_one_not_back(root: Path) -> None:
    sides = Sides(root)
    assert not sides.goes()
    (sides.here / "new").write_text("new")
    (sides.here / "deep/file").unlink()
    (sides.here / "deep").rmdir()
    (sides.here / "deep").write_text("a file now")

    assert sides.goes()
    assert {"new": "new", "deep": "a file now"} == sides.both()
    (sides.there / "new").write_text("changed there")
    assert () == sides.comes()

    assert not sides.goes()
    assert {"new": "changed there", "deep": "a file now"} == sides.both()


def test_a_change_on_both_sides_is_lost_on_neither_and_reported(root: Path) -> None:
    sides = Sides(root)
    (sides.here / "deep/file").write_text("mine")
    (sides.there / "deep/file").write_text("of the run")

    (told,) = sides.comes()

    assert "'deep/file' was changed here and in the sandbox" in told
    assert sides.goes()
    assert {"deep/file": "mine", "deep/file.inside": "of the run"} == sides.both()


def test_a_remote_change_before_an_update_is_kept_beside_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = Sides(root)
    (sides.here / "deep/file").write_text("mine")
    (sides.there / "deep/file").write_text("of a job that goes on")

    assert sides.goes()
    assert capsys.readouterr().out.endswith('["deep/file"]')
    assert () == sides.comes()

    assert {"deep/file": "mine", "deep/file.inside": "of a job that goes on"} == sides.both()


def test_a_file_removed_on_one_side_and_changed_on_the_other_stays(root: Path) -> None:
    sides = Sides(root)
    (sides.there / "deep/file").unlink()
    (sides.here / "deep/file").write_text("mine")
    assert ["'deep/file' was changed here and removed in the sandbox: it is kept, and copied in again."] == [
        *sides.comes()
    ]
    assert sides.goes()
    assert {"deep/file": "mine"} == sides.both()

    (sides.here / "deep/file").unlink()
    (sides.there / "deep/file").write_text("of the run")
    assert sides.goes()
    assert () == sides.comes()
    assert {"deep/file": "of the run"} == sides.both()


def test_too_much_data_is_not_sent_and_that_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(root)
    monkeypatch.setattr(folder_sync, "BOUNDS", folder_sync.BOUNDS._replace(bytes=10))
    (sides.here / "big").write_bytes(bytes(11))

    with pytest.raises(SandboxError, match="it is too large"):
        sides.goes()
