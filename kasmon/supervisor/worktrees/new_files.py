"""The diff of files that git does not track, as git would print it, without a process for each of thousands."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kasmon.paths import open_regular

LARGEST: Final = 8 << 20
"""A larger file is not shown, in bytes."""
BINARY_BYTES: Final = 8000
"""Like git, a file with a zero byte among its first bytes is binary."""
NO_NEWLINE: Final = "\\ No newline at end of file\n"
_SPECIAL: Final = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES: Final = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))


def new_file_diffs(top: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the diff of each regular file and symbolic link among *names*, relative to *top*."""
    for name in names:
        try:
            mode, content = _read(top / name)
        except OSError:  # it is gone, or a repository of its own
            continue
        head = f"diff --git {quote(f'a/{name}')} {quote(f'b/{name}')}\nnew file mode {mode}\n"
        if content is None:
            yield f"{head}Binary files /dev/null and {quote(f'b/{name}')} differ\n"
        elif not content:
            yield head
        else:
            lines = content.split("\n")
            end = NO_NEWLINE if lines[-1] else ""
            lines = lines if lines[-1] else lines[:-1]
            count = f",{len(lines)}" if len(lines) > 1 else ""
            shown = "".join(f"+{line}\n" for line in lines)
            tab = "\t" if " " in name else ""
            yield f"{head}--- /dev/null\n+++ {quote(f'b/{name}')}{tab}\n@@ -0,0 +1{count} @@\n{shown}{end}"


def quote(name: str) -> str:
    """Return *name* as git shows it with `core.quotePath=false`: special characters are escaped, within quotes."""
    if _SPECIAL.search(name) is None:
        return name
    return f'"{_SPECIAL.sub(_escape, name)}"'


def _escape(match: re.Match[str]) -> str:
    letter = _ESCAPES.get(match[0])
    return f"\\{letter}" if letter else f"\\{ord(match[0]):03o}"


def _read(path: Path) -> tuple[str, str | None]:
    """Return git's mode of the file at *path*, and its text; None if it is binary, or too large. Raises `OSError`."""
    if path.is_symlink():
        return "120000", str(path.readlink())
    handle = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        mode = "100755" if facts.st_mode & stat.S_IXUSR else "100644"
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST or b"\0" in content[:BINARY_BYTES]:
        return mode, None
    return mode, content.decode("utf-8", "surrogateescape")
