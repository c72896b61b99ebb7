"""Files of a session of another machine that are copied here when they are read: blobs, and the record of its terminal.

Its log is always here (`kasmon.bus.mirror`). What cannot be copied now is read as missing, as on its own machine.
"""

import contextlib
import hashlib
import re
import time
from pathlib import Path
from typing import Final

from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder, write_private
from kasmon.sanitize import clean_block, replace_controls
from kasmon.store.event_log import EventLog
from kasmon.store.machines import read_presence
from kasmon.supervisor.machines.link_client import read_file

RECORD_FILE: Final = re.compile(r"[0-9]{1,20}\.jsonl|screen\.json")
BLOB: Final = re.compile(rb'blob(?:":"| )([0-9a-f]{64})')
"""A blob that an event names, in a field of its own or behind the beginning of a text."""
MOST_PARTS: Final = 16
AGAIN_S: Final = 30.0
"""A record is copied again after this time, in seconds."""

_copied_at: dict[SessionId, float] = {}


def read_blob(paths: Paths, session: Session, digest: str) -> str:
    """Return the text of a blob; one of another machine is copied first, if its content has that SHA-256. Blocks.

    Raises `OSError` if it does not exist, or cannot be copied.
    """
    path = paths.blobs(session.id) / Path(digest).name
    if session.via and not path.exists():
        with contextlib.suppress(KasmonError):
            content = read_file(paths, session, f"blobs/{path.name}")
            if hashlib.sha256(content).hexdigest() == path.name:
                text = clean_block(content.decode("utf-8", "replace"))
                write_private(private_folder(path.parent) / path.name, text.encode())
    return path.read_text("utf-8", "replace")


def copy_record(paths: Paths, session: Session) -> None:
    """Copy the record of the terminal of *session*, if it is another machine's and that can be reached. Blocks."""
    now = time.monotonic()
    if not session.via or now < _copied_at.get(session.id, -AGAIN_S) + AGAIN_S:
        return
    _copied_at[session.id] = now
    with contextlib.suppress(KasmonError, OSError):
        listed = read_file(paths, session, "terminal").decode("ascii", "replace").split("\n")
        names = [name for name in listed if RECORD_FILE.fullmatch(name)][:MOST_PARTS]
        folder = paths.record(session.id)
        if names:
            private_folder(folder)
        newest = max((name for name in names if name != "screen.json"), default="")
        for name in names:
            if name in (newest, "screen.json") or not (folder / name).exists():  # the other parts are complete
                content = read_file(paths, session, f"terminal/{name}")
                write_private(folder / name, replace_controls(content))
        for old in folder.iterdir() if folder.is_dir() else ():
            if old.name not in names:
                old.unlink(missing_ok=True)


def copy_files(paths: Paths, session: Session) -> None:
    """Copy the record of *session* and the blobs that its log names, for a search. Blocks."""
    if time.monotonic() < _copied_at.get(session.id, -AGAIN_S) + AGAIN_S:
        return
    copy_record(paths, session)
    if read_presence(paths, session.via).why:
        return
    with contextlib.suppress(KasmonError, OSError):
        for line, _ in EventLog(paths.log(session.id)).lines():
            for digest in BLOB.findall(line):
                with contextlib.suppress(OSError):
                    read_blob(paths, session, digest.decode())
