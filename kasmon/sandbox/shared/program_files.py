"""The files of this machine that an agent's program needs in a jail: its own, and those of its interpreters.

A jail sees `/usr` anyway. Agents are mostly elsewhere: an npm package (with the node that runs it), a single binary in
a home, a Python environment. The smallest folder with the whole program is taken; never a home.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import NotFoundError, RefusedError

SEEN: Final = (Path("/usr"), Path("/bin"), Path("/lib"), Path("/lib64"), Path("/sbin"))
"""Folders that are always visible in a jail."""
FIRST_LINE: Final = 512
DEPTH: Final = 4
"""How many interpreters in a row are followed."""


class ProgramFiles(NamedTuple):
    """How a program is run inside."""

    program: str
    folders: tuple[Path, ...]
    """Paths that must be visible inside, each at the same path."""
    path: tuple[str, ...]
    """Folders to search for programs before the usual ones."""


def needed(
    program: str,
    search: str | None = None,
    *,
    visible: Sequence[Path] = SEEN,
    parts: Callable[[Path], Sequence[Path]] = lambda path: (whole(path),),
) -> ProgramFiles:
    """Return the files that *program*, a path or a name on the PATH *search*, needs.

    Args:
        visible: folders whose content is visible anyway.
        parts: what each program on the way needs, by its real path; by default the smallest whole folder.

    Raises:
        NotFoundError: if the program does not exist.
        RefusedError: if a link on its path cannot be resolved.
    """
    found = shutil.which(program, path=search)
    if found is None:
        raise NotFoundError(f"{program!r} was not found, so it cannot be run in a sandbox.")
    real = _real(Path(found))
    folders: list[Path] = []
    path: list[str] = []
    for each in _runs_on(real, search, DEPTH):
        if not any(each.is_relative_to(top) for top in visible):
            folders.extend(parts(each))
            if str(each.parent) not in path:
                path.append(str(each.parent))
    return ProgramFiles(str(real), tuple(outermost(folders)), tuple(path))


def _real(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise RefusedError(f"{str(path)!r} cannot be resolved: {error}.") from error


def _runs_on(program: Path, search: str | None, depth: int) -> Iterator[Path]:
    """Yield *program*, the interpreter on its first line, and the interpreter of that, each by its real path."""
    yield program
    with contextlib.suppress(OSError), program.open("rb") as file:
        arguments = os.fsdecode(file.readline(FIRST_LINE)).removeprefix("#!").split()
        if not (file.tell() and arguments and is_script(program)) or not depth:
            return
        if Path(arguments[0]).name == "env":
            arguments = [argument for argument in arguments[1:] if not argument.startswith("-") and "=" not in argument]
        runner = shutil.which(arguments[0], path=search) if arguments else None
        if runner is not None:
            yield from _environment(Path(runner))
            yield from _runs_on(_real(Path(runner)), search, depth - 1)


def is_script(program: Path) -> bool:
    """Whether its first line names an interpreter."""
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _environment(runner: Path) -> Iterator[Path]:
    """Yield the Python of a virtual environment by the path it is called by: that link leads it to its packages."""
    if (runner.parent.parent / "pyvenv.cfg").is_file():
        yield runner.absolute()


def whole(path: Path) -> Path:
    """Return the folder that *path* is part of and needs as a whole; *path* itself if there is none."""
    homes = {Path(os.path.expanduser("~")), Path("/"), Path("/root"), Path("/home"), Path("/opt")}  # noqa: PTH111
    for folder in reversed(path.parents):  # the outermost of several
        if folder.name == "node_modules" and folder.parent not in homes:
            return folder
    prefix = path.parent.parent
    if path.parent.name == "bin" and prefix not in homes and _is_prefix(prefix):
        return prefix
    return path


def _is_prefix(folder: Path) -> bool:
    return (
        (folder / "pyvenv.cfg").is_file()
        or (folder / "include" / "node").is_dir()
        or any((folder / "lib").glob("python3*/os.py"))
    )


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return *folders* without those inside another of them."""
    return [
        each for each in dict.fromkeys(folders) if not any(each != top and each.is_relative_to(top) for top in folders)
    ]
