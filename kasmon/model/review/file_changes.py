"""A diff from git, split by file. Pure."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kasmon.model.transcript.diff import HUNK

MODES: Final = re.compile(r"(old|new) mode (\d{6})")
REASONS: Final = ("Binary ", "Not shown: ", "old mode", "new mode", "rename ")
"""How the lines begin that describe a change without hunks; the second is kasmon's."""
_ESCAPED: Final = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_LETTERS: Final = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


class FileChange(NamedTuple):
    name: str
    """As in the repository, with `/`; untrusted."""
    lines: tuple[str, ...]
    """From the first hunk on; a description if there is none (a binary file, a mode)."""
    added: int = 0
    removed: int = 0
    kind: str = ""
    """`new`, `deleted`, or empty."""
    old_name: str = ""
    """The name that it was renamed or copied from; else empty."""
    modes: tuple[str, ...] = ()
    """Its old mode and its new one, as git writes them, if they differ."""
    head: str = ""
    """The first line of its part of the diff."""

    @property
    def has_hunks(self) -> bool:
        return bool(self.lines and HUNK.match(self.lines[0]))


def split(whole: str) -> tuple[FileChange, ...]:
    """Return the files of *whole*, a diff from git, in its order."""
    files: list[list[str]] = []
    for line in whole.split("\n"):
        if line.startswith("diff --git "):
            files.append([line])
        elif files:
            files[-1].append(line)
    return tuple(_file(lines) for lines in files)


def _file(lines: Sequence[str]) -> FileChange:
    name, old_name, kind, at = _name(lines[0]), "", "", len(lines)
    modes: list[str] = []
    for number, line in enumerate(lines):
        if HUNK.match(line):
            at = number
            break
        if line.startswith("new file"):
            kind = "new"
        elif line.startswith("deleted file"):
            kind = "deleted"
        elif mode := MODES.fullmatch(line):
            modes.append(mode[2])
        elif line.startswith(("rename from ", "copy from ")):
            old_name = unquoted(line.partition(" from ")[2])
        elif line.startswith(("rename to ", "copy to ")):
            name = unquoted(line.partition(" to ")[2])
        elif line.startswith(("+++ ", "--- ")):
            shown = unquoted(line[4:].removesuffix("\t"))
            name = shown[2:] if shown.startswith(("a/", "b/")) else name
    body = tuple(lines[at:])
    while body and not body[-1]:
        body = body[:-1]
    signs = [line[:1] for line in body]  # in hunks, so no line is a header
    if not body:
        reasons = [line for line in lines[1:] if line.startswith(REASONS)]
        body = tuple(reasons) or ("It is empty.",)
    return FileChange(
        name=name,
        lines=body,
        added=signs.count("+") if at < len(lines) else 0,
        removed=signs.count("-") if at < len(lines) else 0,
        kind=kind,
        old_name=old_name,
        modes=tuple(modes),
        head=lines[0],
    )


def unquoted(name: str) -> str:
    """Return *name* without the quotes and escapes that git puts around special characters."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name

    def byte(match: re.Match[bytes]) -> bytes:
        written = match[1]
        return bytes([int(written, 8) & 0xFF if len(written) > 1 else _LETTERS[written[0]]])

    inner = name[1:-1].encode("utf-8", "surrogateescape")
    return _ESCAPED.sub(byte, inner).decode("utf-8", "surrogateescape")


def _name(head: str) -> str:
    """Return the file that `diff --git a/X b/X` names; if both differ, the new one."""
    names = head.removeprefix("diff --git ")
    if names.endswith('"') and (quoted := re.search(r'"b/(?:[^"\\]|\\.)*"\Z', names)):
        return unquoted(quoted[0])[2:]
    half = len(names) // 2
    if names[:half].removeprefix("a/") == names[half + 1 :].removeprefix("b/"):  # it may itself contain " b/"
        return names[half + 3 :]
    return names.rpartition(" b/")[2] or head
