"""Which of this machine's programs are copied into a machine that runs an agent, and their paths there.

An agent is mostly an npm package, or a single binary in a home. The machine has its image's system, so this machine's
`/usr` is not there. Of a package its folder is taken, or for a script all its dependencies, but not its neighbours.
Each part has the same path inside, unless the image's own system is there.

They are on read-only disks, made once for each version of their content. Machines share `folder/ID.ext4`: each has a
hard link to it, so that none loses it.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import MIB
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.microvm.image import create_disk
from kasmon.sandbox.microvm.qemu import PROGRAMS_BYTES
from kasmon.sandbox.shared.program_files import ProgramFiles, is_script, needed, outermost, whole
from kasmon.sandbox.shared.safe_tree import copy
from kasmon.store.file_lock import lock_folder

THERE: Final = "/opt/programs"
"""Where their disk is mounted in a machine."""
OF_IMAGE: Final = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""A program in these folders is taken from the image, which has its own."""
TAKEN: Final = (
    "/bin", "/boot", "/dev", "/etc", "/home/sandbox", "/lib", "/lib32", "/lib64", "/libx32", "/mnt", "/opt", "/proc",
    "/project", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var", "/workspace",
)  # fmt: skip
"""Paths that belong to the image or the machine: nothing of this machine can be mounted below them."""
MOST_BYTES: Final = 3072 * MIB
MOST_ENTRIES: Final = 200_000
TRUSTS: Final = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
"""Variables that name a file of trusted certificates; most programs read the first one."""
BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
"""Where systems store their trusted certificates."""
RUNNERS: Final = ("node", "nodejs", "bun", "deno")
"""Programs that are single binaries, even in a prefix with other files."""


class ProgramInVm(NamedTuple):
    """How a program is run in a machine, and what is copied for it."""

    argv: tuple[str, ...]
    path: tuple[str, ...] = ()
    """Folders inside to search for programs before the usual ones."""
    variables: Mapping[str, str] = {}
    """Variables whose value differs inside."""
    parts: tuple[str, ...] = ()
    """Paths of this machine to copy to its program disk; empty for a program of the image."""


def prepare_program(argv: tuple[str, ...], variables: Mapping[str, str]) -> ProgramInVm:
    """Return how *argv* with *variables*, among them its PATH, is run in a machine.

    Its trusted certificates are copied as well: the image has none.

    Raises:
        NotFoundError, RefusedError: as `find_needed_files`.
    """
    search = variables.get("PATH")
    program = shutil.which(argv[0], path=search) or argv[0]
    if "/" not in program or any(Path(program).resolve().is_relative_to(top) for top in OF_IMAGE):
        return ProgramInVm(argv)
    need = find_needed_files(program, search)
    trusts = {name: path for name in TRUSTS if (path := variables.get(name)) and Path(path).is_file()}
    known = next((path for path in BUNDLES if Path(path).is_file()), "")
    if known and TRUSTS[0] not in trusts:
        trusts[TRUSTS[0]] = known
    parts = tuple(map(str, outermost([*need.folders, *(Path(path).resolve() for path in trusts.values())])))
    return ProgramInVm(
        argv=(path_inside(need.program, parts), *argv[1:]),
        path=tuple(path_inside(each, parts) for each in need.path),
        variables={name: path_inside(str(Path(path).resolve()), parts) for name, path in trusts.items()},
        parts=parts,
    )


def find_needed_files(program: str, search: str | None = None) -> ProgramFiles:
    """Return the files that *program*, a path or a name on the PATH *search*, needs in a machine.

    Raises:
        NotFoundError: if the program does not exist.
        RefusedError: if a link on its path cannot be resolved, or it is too large.
    """
    found = needed(program, search, visible=[Path(top) for top in OF_IMAGE], parts=find_parts)
    size = entries = 0
    for part in found.folders:
        for _, facts in list_tree(part):
            size, entries = size + (facts.st_size if stat.S_ISREG(facts.st_mode) else 0), entries + 1
    if size > MOST_BYTES or entries > MOST_ENTRIES:
        raise RefusedError(
            f"{program!r} is too large for a microvm: it has {size // MIB} MiB in {entries} files.",
            hint=f"A microvm accepts {MOST_BYTES // MIB} MiB in {MOST_ENTRIES} files. Use the tier `jail`.",
        )
    return found


def path_inside(path: str, programs: Sequence[str]) -> str:
    """Return the path of *path* in a machine that has *programs*; *path* itself if none contains it."""
    for number, part in enumerate(programs):
        if Path(path).is_relative_to(part):
            return str(Path(place(part, number)) / Path(path).relative_to(part))
    return path


def path_on_disk(part: str, number: int) -> str:
    return f"{number}/{Path(part).name}"


def place(part: str, number: int) -> str:
    """Return the path inside of *part*, which has that *number*."""
    is_free = not any(Path(part).is_relative_to(top) or Path(top).is_relative_to(part) for top in TAKEN)
    return part if is_free else f"{THERE}/{path_on_disk(part, number)}"


def find_parts(path: Path) -> tuple[Path, ...]:
    """Return what the program at the real path *path* needs: itself, its package, or the package with dependencies."""
    package = _package(path)
    if package is None:
        return (path,) if path.name in RUNNERS and not is_script(path) else (whole(path),)
    if not is_script(path):
        return (package,)
    every = _find_dependencies(package)
    return (whole(path),) if every is None else tuple(outermost(every))


def _package(path: Path) -> Path | None:
    """Return the innermost npm package folder that contains *path*; None if there is none."""
    for folder in path.parents:
        above = folder.parent.parent if folder.parent.name.startswith("@") else folder.parent
        if above.name == "node_modules" and (folder / "package.json").is_file():
            return folder
    return None


def _find_dependencies(package: Path) -> list[Path] | None:
    """Return *package* and its installed dependencies, found as node does; None if one is a link."""
    found, ahead = dict[Path, None](), [package]
    while ahead:
        folder = ahead.pop()
        if folder in found:
            continue
        found[folder] = None
        for name in _read_dependencies(folder):
            place = next(
                (each for top in (folder, *folder.parents) if (each := top / "node_modules" / name).is_dir()), None
            )
            if place is not None and place.resolve() != place:
                return None
            if place is not None:
                ahead.append(place)
    return list(found)


def _read_dependencies(package: Path) -> list[str]:
    try:
        package_json = json.loads((package / "package.json").read_bytes())
        groups = [package_json.get(kind) or {} for kind in ("dependencies", "optionalDependencies", "peerDependencies")]
        return [str(name) for group in groups for name in group if ".." not in name]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def list_tree(part: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each path of *part* and its stat, always in the same order."""
    yield str(part), part.lstat()
    for folder, folders, files in os.walk(part):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = f"{folder}/{name}"
            with contextlib.suppress(FileNotFoundError):
                yield path, os.lstat(path)


TOLD: Final = "places.json"
"""On the disk: the path of each part inside, if it differs from that on the disk."""
UNUSED_S: Final = 30 * 24 * 3600.0
"""A disk unused for so long is removed when the next one is made, unless a machine has it."""


class ProgramDisks:
    """The program disks in *folder*. Constructing this has no side effects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, programs: Sequence[str]) -> Path:
        """Return the disk with copies of *programs* as they are now; it is made if missing, in up to a minute.

        Raises:
            SandboxError, RefusedError, OSError: if it cannot be made.
        """
        for folder in (self.folder.parent, self.folder):
            if not folder.exists():
                private_folder(folder)
        disk = self.folder / f"{compute_id(programs)}.ext4"
        with lock_folder(self.folder):
            if not disk.is_file():
                self._make(programs, disk)
            os.utime(disk)
        return disk

    def _make(self, programs: Sequence[str], disk: Path) -> None:
        for path in self.folder.iterdir():
            if path.suffix != ".ext4" or (path.stat().st_nlink == 1 and path.stat().st_mtime < time.time() - UNUSED_S):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            root, fresh = private_folder(Path(name) / "root"), Path(name) / "disk"
            for number, part in enumerate(programs):
                private_folder(root / str(number))
                _copy_part(Path(part), root / path_on_disk(part, number))
            disk_paths = {path_on_disk(part, number): place(part, number) for number, part in enumerate(programs)}
            write_private(root / TOLD, msgspec.json.encode(disk_paths))
            for path in [root, *root.rglob("*")]:  # its maker owns the files; they are read-only
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o444)
            create_disk(root, fresh)
            os.truncate(fresh, PROGRAMS_BYTES)
            fresh.replace(disk)


def compute_id(programs: Sequence[str]) -> str:
    """Return an id of *programs* now, by paths, sizes and times alone. Raises `OSError` if they cannot be read."""
    digest = hashlib.sha256(b"2")
    for part in programs:
        for path, facts in list_tree(Path(part)):
            seen = (
                (path, facts.st_mode, facts.st_size, facts.st_mtime_ns) if not stat.S_ISDIR(facts.st_mode) else (path,)
            )
            digest.update(repr(seen).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:24]


def _copy_part(source: Path, target: Path) -> None:
    if source.is_dir():
        owner = (os.geteuid(), os.getegid())
        copy(source, target, owner, limit_bytes=MOST_BYTES, limit_entries=MOST_ENTRIES, is_exact=True)
    else:
        shutil.copy2(source, target)
