"""What a project brings along that an agent could run, found without running any of it.

Its texts are hostile: they are read in bounds, and what cannot be read counts as something that could run.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

LONGEST_BYTES: Final = 1 << 20
"""A longer file is not read."""
FILES: Final = 300
"""How many files of a folder are looked at."""
DEPTH: Final = 4
UNREAD: Final = "which cannot be read"
WITH_NAMES: Final = frozenset({"hooks", "mcpServers", "permissions"})
"""Keys of settings in which the names tell more."""
COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


class UntrustedProject(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that nobody has trusted, and what of it could run."""

    folder: str
    things: tuple[str, ...]
    fix: str
    """What a person can do, as sentences."""


def upwards(folder: Path) -> Iterator[Path]:
    """*folder* and the folders above it, the nearest first."""
    yield folder
    yield from folder.parents


def table(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file at *path*, which may hold comments; None if it holds none, or cannot be read.

    A file that is not there is an empty object.
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
    """What the file at *path* holds, empty where there is none; None if it cannot be read, or is no file."""
    try:
        if not path.is_file():
            return None if os.path.lexists(path) else ""
        if path.stat().st_size > LONGEST_BYTES:
            return None
        return path.read_text("utf-8-sig", "replace")
    except OSError:
        return None


def settings(path: Path, shown: str, harmless: Collection[str]) -> Iterator[str]:
    """What could run because of the settings at *path*, which is *shown* so: each key that has a value."""
    found = table(path)
    if found is None:
        yield f"{shown}, {UNREAD}"
        return
    for key, value in found.items():
        if not value or key in harmless:
            continue
        names = ", ".join(value) if key in WITH_NAMES and isinstance(value, dict) else ""
        yield f"{key}{f' ({names})' if names else ''} in {shown}"


def texts(folder: Path, shown: str, ending: str, running: re.Pattern[str]) -> Iterator[str]:
    """The files below *folder*, which is *shown* so, that end with *ending* and in which *running* is found."""
    for number, file in enumerate(_files(folder, ending, DEPTH)):
        name = f"{shown}/{file.relative_to(folder)}"
        if number >= FILES:
            yield f"more in {shown}"
            return
        text = text_of(file)
        if text is None:
            yield f"{name}, {UNREAD}"
        elif running.search(text):
            yield name


def _files(folder: Path, ending: str, depth: int) -> Iterator[Path]:
    """Links are followed, as agents do; *depth* folders deep."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[: FILES + 1]
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_dir():
                if depth > 1:
                    yield from _files(Path(entry.path), ending, depth - 1)
            elif entry.name.endswith(ending):
                yield Path(entry.path)
        except OSError:
            continue


def entries(found: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """The object that *found* has at *key*; empty where it has none."""
    value = (found or {}).get(key)
    return value if isinstance(value, dict) else {}
