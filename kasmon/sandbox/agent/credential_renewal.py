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

DIGESTS_FILE: Final = "handed.json"
"""In the session's folder: which copies were made, with the digest of each."""
MAY_CHANGE: Final = re.compile(
    r"(access|refresh|id)?_?(token|refresh|access)|expir(y|es)?(_?(at|date|in))?|last_refresh", re.IGNORECASE
)
"""The names of fields that a renewal changes."""
EXPIRY: Final = re.compile(r"expir", re.IGNORECASE)


def record_digests(files: Sequence[HandedFile], session_folder: Path) -> None:
    """Record the digests of the files that are copied now, so that a later call finds what changed.

    Raises:
        RefusedError: as `credential_files.read_source`.
        OSError: if the record cannot be written.
    """
    contents = {each.source: credential_files.read_source(each) for each in files if each.renews}
    digests = {source: _digest(content) for source, content in contents.items() if content is not None}
    write_private(session_folder / DIGESTS_FILE, msgspec.json.encode(digests))


def load_digests(session_folder: Path) -> Mapping[str, str]:
    """Return the digests of the last `record_digests`; clearing the jail's session folder removes them."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode((session_folder / DIGESTS_FILE).read_bytes(), type=dict[str, str])
    return {}


def copy_back(files: Sequence[HandedFile], home: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Copy renewed log-ins in *home* back to their sources; return a sentence for each, copied or refused.

    Args:
        files: the files that were copied in.
        home: where the copies are; no process writes there any more.
        digests: the digests of the copies, as `load_digests` before the session's folder was cleared.
    """
    sentences = []
    for handed_file in files:
        if not handed_file.renews or handed_file.source not in digests:
            continue
        now = credential_files.read_copy(handed_file, home)
        if now is None or _digest(now) == digests[handed_file.source]:
            continue
        why = _write_back(handed_file, now, digests[handed_file.source])
        outcome = f"It renewed {handed_file.source!r}, which was"
        fix = "Log in again if the original on this machine is rejected."
        sentences.append(f"{outcome} not copied back: {why}. {fix}" if why else f"{outcome} copied back.")
    return tuple(sentences)


def find_fault(before: bytes, after: bytes) -> str:
    """Return why *after* is no renewal of the log-in *before*; empty where it is one. Both are JSON."""
    try:
        old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it cannot be read"
    if not isinstance(old, dict):
        return "its format is unknown to kasmon"
    return _find_difference(old, new, "")


def _find_difference(old: Any, new: Any, name: str) -> str:
    """Return why *new* may not replace *old*, under *name*; empty where it may."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return "it has other fields than before"
        return next((why for key in old if (why := _find_difference(old[key], new[key], key))), "")
    if old == new and type(old) is type(new):
        return ""
    if not MAY_CHANGE.fullmatch(name) or type(old) is not type(new) or not isinstance(new, str | int | float):
        return f"a field other than tokens and times changed ({name!r})"
    if EXPIRY.match(name) and new < old:
        return "it expires before the original"
    return "" if new else f"it has no {name!r}"


def _write_back(handed_file: HandedFile, content: bytes, digest: str) -> str:
    """Write *content* to the source of *handed_file*; return why that was not done, empty where it was."""
    path = Path(os.path.realpath(expanded(handed_file.source)))
    with contextlib.suppress(OSError, RefusedError):
        before = credential_files.read_source(handed_file)
        if before is None or _digest(before) != digest:
            return "the original has changed meanwhile"
        if why := find_fault(before, content):
            return why
        status = path.stat()
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return "the original is not yours"
        write_private(path, content)
        return ""
    return "the original is not writable"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
