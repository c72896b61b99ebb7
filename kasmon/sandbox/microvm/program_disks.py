"""Which of this machine's programs are copied into a machine that runs an agent, and their paths there.

An agent is mostly an npm package, or a single binary in a home. The machine has its image's system, so this machine's
`/usr` is not there. Of a package its folder is taken, or for a script all its dependencies, but not its neighbours.
Each part has the same path inside, unless the image's own system is there.
"""

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import MIB
from kasmon.sandbox.shared.program_files import ProgramFiles, is_script, needed, outermost, whole

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
        here = ahead.pop()
        if here in found:
            continue
        found[here] = None
        for name in _read_dependencies(here):
            place = next(
                (each for top in (here, *here.parents) if (each := top / "node_modules" / name).is_dir()), None
            )
            if place is not None and place.resolve() != place:
                return None
            if place is not None:
                ahead.append(place)
    return list(found)


def _read_dependencies(package: Path) -> list[str]:
    try:
        told = json.loads((package / "package.json").read_bytes())
        groups = [told.get(kind) or {} for kind in ("dependencies", "optionalDependencies", "peerDependencies")]
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
