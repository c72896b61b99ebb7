"""What an agent's program needs of this machine to run in a jail: its own files, and those of what it runs on.

A jail sees `/usr` anyway. Agents mostly lie elsewhere: a package of npm beside others (with the node that runs it), a
single binary in somebody's home, a Python environment. The smallest folder that holds the whole is taken; never a home.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import NotFoundError, RefusedError

SEEN: Final = (Path("/usr"), Path("/bin"), Path("/lib"), Path("/lib64"), Path("/sbin"))
"""What a jail sees without being asked."""
FIRST_LINE: Final = 512
DEPTH: Final = 4
"""So many programs in a row may each be run by the next."""


class ProgramFiles(NamedTuple):
    """How a program is run inside."""

    program: str
    """The program by its real path."""
    folders: tuple[Path, ...]
    """What is to be seen inside, each where it is outside."""
    path: tuple[str, ...]
    """Folders to be searched for programs before the usual ones."""


def needed(
    program: str,
    search: str | None = None,
    *,
    seen: Sequence[Path] = SEEN,
    parts: Callable[[Path], Sequence[Path]] = lambda path: (whole(path),),
) -> ProgramFiles:
    """What *program*, a path or a name on the PATH *search*, needs.

    Args:
        program: what is to be run.
        search: where it is looked for.
        seen: below these all is there without being asked.
        parts: what each program on the way needs, by its real path; by default the smallest folder that is whole.

    Raises:
        NotFoundError: if there is no such program.
        RefusedError: if a link in its way leads nowhere.
    """
    found = shutil.which(program, path=search)
    if found is None:
        raise NotFoundError(f"{program!r} was not found, so it cannot be run in a sandbox.")
    real = _real(Path(found))
    folders: list[Path] = []
    path: list[str] = []
    for each in _runs_on(real, search, DEPTH):
        if not any(each.is_relative_to(top) for top in seen):
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
    """*program*, what its first line says that runs it, and what that is; each by its real path."""
    yield program
    with contextlib.suppress(OSError), program.open("rb") as file:
        words = os.fsdecode(file.readline(FIRST_LINE)).removeprefix("#!").split()
        if not (file.tell() and words and is_script(program)) or not depth:
            return
        if Path(words[0]).name == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        runner = shutil.which(words[0], path=search) if words else None
        if runner is not None:
            yield from _environment(Path(runner))
            yield from _runs_on(_real(Path(runner)), search, depth - 1)


def is_script(program: Path) -> bool:
    """Whether its first line says what runs it."""
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _environment(runner: Path) -> Iterator[Path]:
    """The Python of a virtual environment, as it is called: by its link it finds its packages."""
    if (runner.parent.parent / "pyvenv.cfg").is_file():
        yield runner.absolute()


def whole(path: Path) -> Path:
    """The folder that *path* is a part of and needs as a whole; *path* itself where there is none."""
    homes = {Path(os.path.expanduser("~")), Path("/"), Path("/root"), Path("/home"), Path("/opt")}  # noqa: PTH111
    for folder in reversed(path.parents):  # the outermost of several
        if folder.name == "node_modules" and folder.parent not in homes:
            return folder
    prefix = path.parent.parent
    if path.parent.name == "bin" and prefix not in homes and _is_prefix(prefix):
        return prefix
    return path


def _is_prefix(folder: Path) -> bool:
    """Whether a node or a Python was installed to *folder*."""
    return (
        (folder / "pyvenv.cfg").is_file()
        or (folder / "include" / "node").is_dir()
        or any((folder / "lib").glob("python3*/os.py"))
    )


def outermost(folders: Sequence[Path]) -> list[Path]:
    """*folders* without those that lie in another of them."""
    return [
        each for each in dict.fromkeys(folders) if not any(each != top and each.is_relative_to(top) for top in folders)
    ]
