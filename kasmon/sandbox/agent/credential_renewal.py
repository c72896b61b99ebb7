"""Copies a log-in that an agent renewed inside back to the file that it came from, if that is safe.

Providers replace the old token, which is invalid from then on: without the copy back, the log-in outside would be lost.
But the file inside may be written by an attacker. So only tokens and times may differ, it must not expire before the
original, and the original must be unchanged since the copy was made.
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
"""In the session's folder: which copies were made, with the digest of each."""
MAY_CHANGE: Final = re.compile(
    r"(access|refresh|id)?_?(token|refresh|access)|expir(y|es)?(_?(at|date|in))?|last_refresh", re.IGNORECASE
)
"""The names of fields that a renewal changes."""
ENDS: Final = re.compile(r"expir", re.IGNORECASE)


def note(files: Sequence[HandedFile], ground: Path) -> None:
    """Record the digests of the files that are copied now, so that a later call finds what changed.

    Raises:
        RefusedError: as `credential_files.content`.
        OSError: if the record cannot be written.
    """
    contents = {handed.source: credential_files.content(handed) for handed in files if handed.renews}
    digests = {source: _digest(content) for source, content in contents.items() if content is not None}
    write_private(ground / NOTE, msgspec.json.encode(digests))


def noted(ground: Path) -> Mapping[str, str]:
    """Return the digests that `note` recorded last; the record is removed when the jail's session folder is cleared."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode((ground / NOTE).read_bytes(), type=dict[str, str])
    return {}


def bring_back(files: Sequence[HandedFile], home: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Copy renewed log-ins in *home* back to their sources; return a sentence for each, copied or refused.

    Args:
        files: the files that were copied in.
        home: where the copies are; no process writes there any more.
        digests: the digests of the copies, as `noted` before the session's folder was cleared.
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
    """Return why *after* is no renewal of the log-in *before*; empty where it is one. Both are JSON."""
    try:
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it cannot be read"
    if not isinstance(old, dict):
        return "its format is unknown to kasmon"
    return _difference(old, new, "")


def _difference(old: Any, new: Any, name: str) -> str:
    """Return why *new* may not replace *old*, under *name*; empty where it may."""
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
    """Write *content* to the source of *handed*; return why that was not done, empty where it was."""
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
