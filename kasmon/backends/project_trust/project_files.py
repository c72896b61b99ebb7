"""Find what a project contains that an agent could run, without running any of it.

Its files are untrusted: reads are bounded, and an unreadable file counts as something that could run.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.paths import open_regular

LONGEST_BYTES: Final = 1 << 20
"""A longer file is not read."""
FILES: Final = 300
"""How many files below a folder are read at most."""
FOLDERS: Final = 1000
"""How many folders below a folder are looked into at most: links can lead in a circle."""
ENTRIES: Final = 20_000
"""How many entries below a folder are looked at at most: many links can lead to one large folder."""
UNREAD: Final = "which cannot be read"
WITH_NAMES: Final = frozenset({"hooks", "mcpServers", "permissions"})
"""Settings keys whose entries are listed by name."""
COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


class UntrustedProject(msgspec.Struct, frozen=True, kw_only=True):
    """An untrusted folder, and what in it could run."""

    folder: str
    things: tuple[str, ...]
    fix: str
    """What the user can do, as sentences."""


def upwards(folder: Path) -> Iterator[Path]:
    """Yield *folder* and its parents, the nearest first."""
    yield folder
    yield from folder.parents


def table(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in the file at *path*, which may hold comments; None if unreadable or no object.

    A missing file is an empty object.
    """
    text = text_of(path)
    if text is None:
        return None
    try:
        found = json.loads(COMMENT.sub(lambda match: match[1] or "", text)) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_of(path: Path) -> str | None:
    """Return the text of the file at *path*, empty if it is missing; None if it cannot be read or is not a file."""
    try:
        if not path.is_file():
            return None if os.path.lexists(path) else ""
        # `/proc/kmsg`, for example, has its data later: reading does not wait for that
        with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8-sig", errors="replace") as file:
            text = file.read(LONGEST_BYTES + 1)
    except OSError:
        return None
    return text if len(text) <= LONGEST_BYTES else None


def settings(path: Path, shown: str, harmless: Collection[str]) -> Iterator[str]:
    """Yield what the settings at *path* could run: each key that has a value. *shown* is the path to display."""
    found = table(path)
    if found is None:
        yield f"{shown}, {UNREAD}"
        return
    for key, value in found.items():
        if not value or key in harmless:
            continue
        names = ", ".join(value) if key in WITH_NAMES and isinstance(value, dict) else ""
        yield f"{key}{f' ({names})' if names else ''} in {shown}"


def texts(folder: Path, shown: str, ending: str, can_run: Callable[[str], object]) -> Iterator[str]:
    """Yield the files below *folder* that end with *ending* and of whose text *can_run* is true.

    *ending* is in lower case; *shown* is the path to display. A folder that cannot be listed counts as well.
    """
    for number, file in enumerate(_files(folder, ending)):
        if file is None or number >= FILES:
            yield f"more in {shown}"
            return
        name = str(Path(shown, file.relative_to(folder)))
        text = text_of(file)
        if text is None:
            yield f"{name}, {UNREAD}"
        elif can_run(text):
            yield name


def _files(folder: Path, ending: str) -> Iterator[Path | None]:
    """Yield the files below *folder*, however deep, and folders that cannot be listed; None if there is more.

    Links are followed, as agents do. Case does not count: a file system may ignore it.
    """
    folders, left = [folder], ENTRIES
    for place in folders:
        try:
            with os.scandir(place) as listing:
                found = sorted(itertools.islice(listing, left + 1), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield place
            continue
        left -= len(found)
        for entry in found:
            try:
                if entry.is_dir():
                    folders.append(Path(entry.path))
                elif entry.name.lower().endswith(ending):
                    yield Path(entry.path)
            except OSError:
                continue
        if left < 0 or len(folders) > FOLDERS:
            yield None
            return


def entries(values: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """Return the object at *key* in *values*; empty if there is none."""
    value = (values or {}).get(key)
    return value if isinstance(value, dict) else {}
