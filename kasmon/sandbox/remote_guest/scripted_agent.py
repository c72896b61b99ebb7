"""The scripted agent in a sandbox: a part of kasmon, whose modules are copied into its home for the Python inside."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.sandbox.shared.guest_paths import HOME
from kasmon.sandbox.shared.host_folders import PYTHON

SCRIPTED: Final = "kasmon.scripted"
FOLDER: Final = ".kasmon/scripted"
KASMON: Final = Path(__file__).resolve().parent.parent.parent
PARTS: Final = ("__init__.py", "sanitize.py", "errors.py", "model", "scripted", "scripted_agent", "terminal_text")
NEEDED: Final = ("msgspec", "pygments", "wcwidth")
"""Its dependencies besides the standard library; each is a whole folder."""
THEIRS: Final = (3, 11)
"""The Python of Debian 12, which sandboxes have."""


def adapted(argv: Sequence[str], variables: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return *argv* and *variables* of the scripted agent as used inside; those of other agents unchanged.

    Raises:
        UnableError: if the Python inside cannot run kasmon's modules.
    """
    if SCRIPTED not in argv:
        return tuple(argv), dict(variables)
    if sys.version_info[:2] != THEIRS:
        ours, theirs = (".".join(map(str, version)) for version in (sys.version_info[:2], THEIRS))
        raise UnableError(
            f"the scripted agent runs on kasmon's own Python, {ours} here, and this sandbox has {theirs}.",
            hint="Use the tier `jail`, or run kasmon on that Python.",
        )
    rest = argv[list(argv).index(SCRIPTED) + 1 :]
    return (PYTHON, "-P", "-m", SCRIPTED, *rest), {**variables, "PYTHONPATH": f"{HOME}/{FOLDER}"}


def put(home: Path, owner: tuple[int, int]) -> None:
    """Replace kasmon's modules in *home*; *owner* owns them. Raises `OSError` if that fails."""
    folder = home / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    for name in PARTS:
        _copy(KASMON / name, folder / "kasmon" / name)
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        _copy(Path(spec.origin).parent, folder / name)
    for path in (folder.parent, folder, *folder.rglob("*")):
        os.chown(path, *owner)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)  # with file times, so that compiled modules stay valid
    else:
        shutil.copy2(source, target)
