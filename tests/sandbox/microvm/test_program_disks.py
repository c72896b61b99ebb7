"""What of this machine's programs a virtual machine is given: as much as one of them needs, once, and no more."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, RefusedError
from kasmon.sandbox.microvm import debian_packages, program_disks
from kasmon.sandbox.microvm.program_disks import (
    ProgramDisks,
    compute_id,
    find_needed_files,
    path_inside,
    place,
    prepare_program,
)

ELF = "\x7fELF"
has_mke2fs = pytest.mark.skipif(
    not (debian_packages.find_program("mke2fs") and debian_packages.find_program("debugfs")),
    reason="e2fsprogs is not installed",
)


def put(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def package(modules: Path, name: str, **asks: Sequence[str]) -> Path:
    told = {"name": name, **{kind: dict.fromkeys(names, "*") for kind, names in asks.items()}}
    put(modules / name / "package.json", json.dumps(told))
    return modules / name


def test_a_native_program_has_its_own_package_and_no_file_beside_it(tmp_path: Path) -> None:
    modules = tmp_path / "lib" / "node_modules"
    ours, _ = package(modules, "@maker/agent", dependencies=["other"]), package(modules, "other")
    put(ours / "bin" / "agent.exe", ELF)
    put(tmp_path / "bin" / "x")
    (tmp_path / "bin" / "agent").symlink_to(ours / "bin" / "agent.exe")

    need = find_needed_files("agent", str(tmp_path / "bin"))

    assert (str(ours / "bin" / "agent.exe"), (ours,)) == (need.program, need.folders)


def test_a_script_has_its_package_its_dependencies_and_its_node(
    tmp_path: Path,
) -> None:
    modules, prefix = tmp_path / "node_modules", tmp_path / "v22"
    ours = package(modules, "agent", dependencies=["a", "gone"], optionalDependencies=["@x/linux"])
    of_its_own = package(ours / "node_modules", "a", dependencies=["b"])
    wanted = {ours, package(modules, "b", dependencies=["a"]), package(modules, "@x/linux"), package(modules, "a")}
    package(modules, "unasked")
    script = put(ours / "cli.js", "#!/usr/bin/env node\n")
    put(prefix / "bin" / "node", ELF)
    (prefix / "include" / "node").mkdir(parents=True)

    need = find_needed_files(str(script), f"{prefix / 'bin'}:/usr/bin")

    assert of_its_own.is_relative_to(ours)
    assert {*wanted, prefix / "bin" / "node"} == set(need.folders)
    assert str(prefix / "bin") in need.path


def test_packages_behind_links_are_all_included(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules"
    ours = package(modules, "agent", dependencies=["a"])
    (modules / "a").symlink_to(package(tmp_path / "store", "a"))
    script = put(ours / "cli.js", "#!/usr/bin/env node\n")

    assert (modules,) == find_needed_files(str(script)).folders


@pytest.mark.parametrize("told", ["", "[]", "{", '{"dependencies": ["a"]}', '{"dependencies": {"../../..": "*"}}'])
def test_a_package_with_an_invalid_description_is_used_as_it_is(tmp_path: Path, told: str) -> None:
    ours = put(tmp_path / "node_modules" / "agent" / "package.json", told).parent

    assert (ours,) == find_needed_files(str(put(ours / "cli.js", "#!/usr/bin/env node\n"))).folders


def test_a_program_of_the_image_needs_nothing_of_this_machine() -> None:
    assert (("bash", "-l"), ()) == prepare_program(("bash", "-l"), {"PATH": "/usr/bin:/bin"})[0::3]
    assert ("/usr/bin/env",) == prepare_program(("/usr/bin/env",), {}).argv
    assert ("of-no-machine",) == prepare_program(("of-no-machine",), {"PATH": "/usr/bin"}).argv


def test_a_missing_or_oversized_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError):
        prepare_program((f"{tmp_path}/agent",), {})
    monkeypatch.setattr(program_disks, "MOST_BYTES", 3)
    with pytest.raises(RefusedError, match="too large"):
        prepare_program((str(put(tmp_path / "agent", ELF)),), {})


def test_each_file_has_its_outside_path_unless_the_image_or_the_machine_uses_it() -> None:
    assert "/home/me/agent" == place("/home/me/agent", 0)
    assert "/usrlocal/x" == place("/usrlocal/x", 0)
    for taken in ("/usr/local/lib/node_modules/agent", "/opt/agent", "/tmp/agent", "/workspace/agent", "/etc/ssl"):
        assert f"/opt/programs/1/{Path(taken).name}" == place(taken, 1)
    assert "/opt/programs/0/home" == place("/home", 0)
    parts = ("/srv/a", "/opt/b")
    assert ["/srv/a/x", "/opt/programs/1/b", "/opt/bb"] == [
        path_inside(path, parts) for path in ("/srv/a/x", "/opt/b", "/opt/bb")
    ]


def test_its_trusted_certificates_are_included_at_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, own, system = (put(tmp_path / name / name, ELF) for name in ("agent", "own", "system"))
    monkeypatch.setattr(program_disks, "BUNDLES", ("/nowhere", str(system)))

    found = prepare_program((str(agent),), {"NODE_EXTRA_CA_CERTS": str(own), "CURL_CA_BUNDLE": "/gone"})

    assert {str(agent), str(system), str(own)} == set(found.parts)
    assert {
        "SSL_CERT_FILE": path_inside(str(system), found.parts),
        "NODE_EXTRA_CA_CERTS": path_inside(str(own), found.parts),
    } == (found.variables)
    own_bundle = prepare_program((str(agent),), {"SSL_CERT_FILE": str(own)})
    assert ({"SSL_CERT_FILE"}, {str(agent), str(own)}) == (set(own_bundle.variables), set(own_bundle.parts))


def on_the_disk(disk: Path, command: str) -> str:
    program = debian_packages.find_program("debugfs")
    assert program is not None
    return subprocess.run([program, "-R", command, disk], capture_output=True, text=True, check=True).stdout


@has_mke2fs
def test_a_disk_is_created_once_and_again_after_a_program_changed(tmp_path: Path) -> None:
    agent, kept = put(tmp_path / "agent" / "run", "one", 0o700), ProgramDisks(tmp_path / "machines" / "programs")
    put(tmp_path / "agent" / "private", "own", 0o600)
    (tmp_path / "agent" / "link").symlink_to("run")
    os.mkfifo(tmp_path / "agent" / "pipe")
    parts = (str(tmp_path / "agent"), str(put(tmp_path / "single", "two", 0o4755)))
    disk = kept.prepare(parts)

    paths = {"0/agent": place(parts[0], 0), "1/single": place(parts[1], 1)}
    assert paths == json.loads(on_the_disk(disk, "cat /places.json"))
    assert "two" == on_the_disk(disk, "cat /1/single")
    listed = on_the_disk(disk, "ls -l /0/agent")
    assert ["100755", "100444", "120777"] == [
        next(line.split()[1] for line in listed.splitlines() if line.endswith(f" {name}"))
        for name in ("run", "private", "link")
    ]
    assert "pipe" not in listed
    assert " 100755 " in on_the_disk(disk, "ls -l /1")
    assert 4 << 30 == disk.stat().st_size
    assert disk.stat().st_blocks * 512 < 64 << 20
    assert disk.stat().st_ino == kept.prepare(parts).stat().st_ino

    agent.write_text("other")
    again = kept.prepare(parts)

    assert again != disk
    assert "other" == on_the_disk(again, "cat /0/agent/run")


@has_mke2fs
def test_unused_disks_are_removed_and_those_of_machines_stay(tmp_path: Path) -> None:
    kept = ProgramDisks(tmp_path / "programs")
    old, used = (kept.prepare((str(put(tmp_path / name, name)),)) for name in ("old", "used"))
    os.link(used, tmp_path / "machines-own")
    (kept.folder / "left-by-one-that-was-killed").mkdir()
    for disk in (old, used):
        os.utime(disk, (0, 0))

    kept.prepare((str(put(tmp_path / "new", "new")),))

    assert not old.exists()
    assert used.exists()
    assert 2 == len(list(kept.folder.iterdir()))


@has_mke2fs
def test_a_disk_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, part = ProgramDisks(tmp_path / "programs"), str(put(tmp_path / "a" / "agent", ELF).parent)
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(OSError, match="No space"):
        kept.prepare((part,))

    assert [] == list(kept.folder.iterdir())


def test_it_is_identified_by_names_sizes_and_times_and_is_not_read(tmp_path: Path) -> None:
    file = put(tmp_path / "agent" / "run", "one")
    before = compute_id((str(file.parent),))
    (tmp_path / "other").mkdir()

    assert before == compute_id((str(file.parent),))
    assert before != compute_id((str(tmp_path / "other"),))
    os.utime(file, (1, 1))
    assert before != compute_id((str(file.parent),))
