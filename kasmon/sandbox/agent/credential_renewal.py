"""A log-in that an agent renewed inside, brought back to the file that it was copied from: only that, and only if sure.

Providers give a new token for the old one, which is worth nothing then: a copy that is thrown away would take the
log-in outside with it. But what lies inside is written by whoever steers the agent. So only tokens and times may have
changed in it, it must not be older than the one outside, and nobody must have written that one since the copy was made.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import HandedFile
from kasmon.paths import expanded, write_private
from kasmon.sandbox.agent import credential_files

NOTE: Final = "handed.json"
"""In a ground: which copies were made, by the digest of each."""
MAY_CHANGE: Final = re.compile(
    r"(access|refresh|id)?_?(token|refresh|access)|expir(y|es)?(_?(at|date|in))?|last_refresh", re.IGNORECASE
)
"""The names of what a renewal changes."""
ENDS: Final = re.compile(r"expir", re.IGNORECASE)


def note(files: Sequence[HandedFile], ground: Path) -> None:
    """Remember what is handed over now, so that it is known later what has changed.

    Raises:
        RefusedError: as `credential_files.content`.
        OSError: if it cannot be written down.
    """
    contents = {handed.source: credential_files.content(handed) for handed in files if handed.renews}
    digests = {source: _digest(content) for source, content in contents.items() if content is not None}
    write_private(ground / NOTE, msgspec.json.encode(digests))


def noted(ground: Path) -> Mapping[str, str]:
    """What `note` remembered last: it goes when the jail's ground is cleared."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode((ground / NOTE).read_bytes(), type=dict[str, str])
    return {}


def bring_back(files: Sequence[HandedFile], home: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Put what was renewed in *home* where it was copied from; a sentence for each that was, or should have been.

    Args:
        files: what was handed over.
        home: where the copies lie; nobody writes there any more.
        digests: what they were then, as `noted` before the ground was cleared.
    """
    told = []
    for handed in files:
        if not handed.renews or handed.source not in digests:
            continue
        now = credential_files.copied(handed, home)
        if now is None or _digest(now) == digests[handed.source]:
            continue
        why = _put(handed, now, digests[handed.source])
        what = f"It renewed {handed.source!r}, which was"
        fix = "Log in again if the original on this machine is rejected."
        told.append(f"{what} not copied back: {why}. {fix}" if why else f"{what} copied back.")
    return tuple(told)


def fault(before: bytes, after: bytes) -> str:
    """Why *after* is no renewal of the log-in *before*; empty where it is one. Both are JSON."""
    try:
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it cannot be read"
    if not isinstance(old, dict):
        return "its format is unknown to kasmon"
    return _difference(old, new, "")


def _difference(old: Any, new: Any, name: str) -> str:
    """Why *new* does not stand where *old* did, under *name*; empty where it may."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return "it has other fields than before"
        return next((why for key in old if (why := _difference(old[key], new[key], key))), "")
    if old == new and type(old) is type(new):
        return ""
    if not MAY_CHANGE.fullmatch(name) or type(old) is not type(new) or not isinstance(new, str | int | float):
        return f"a field other than tokens and times changed ({name!r})"
    if ENDS.match(name) and new < old:
        return "it expires before the original"
    return "" if new else f"it has no {name!r}"


def _put(handed: HandedFile, content: bytes, digest: str) -> str:
    """Put *content* where *handed* came from; why that was not done, empty where it was."""
    path = Path(os.path.realpath(expanded(handed.source)))
    with contextlib.suppress(OSError, RefusedError):
        before = credential_files.content(handed)
        if before is None or _digest(before) != digest:
            return "the original has changed meanwhile"
        if why := fault(before, content):
            return why
        facts = path.stat()
        if facts.st_uid != os.geteuid() or not stat.S_ISREG(facts.st_mode):
            return "the original is not yours"
        write_private(path, content)
        return ""
    return "the original is not writable"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
